package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// Position is a place in a file. Line and Column count from 1, Column in characters;
// both are 0 when nothing in the file is meant.
type Position struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
}

// String is the position as compilers write it: fly.toml:3:5.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Warning says that something in a file does not do here what it does elsewhere.
type Warning struct {
	Position
	Field   string `json:"field"` // services[0].internal_port
	Message string `json:"message"`
}

// String is the warning in one line.
func (w Warning) String() string { return line(w.Position, w.Field, w.Message) }

// Problem is one mistake in a file.
type Problem struct {
	Position
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
}

// Error implements error.
func (p Problem) Error() string { return line(p.Position, p.Field, p.Message) }

func line(at Position, field, message string) string {
	if field != "" {
		message = brief(field) + ": " + message
	}
	return at.String() + ": " + message
}

// Problems are all mistakes of a file, in the order of their positions. It is what an
// error of this package wraps; find it with errors.AsType.
type Problems []Problem

// Error has a line for each.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}

// maxProblems bounds what is said of one file.
const maxProblems = 32

// err is the problems as one error of code invalid, nil for none.
func (p Problems) err() error {
	if len(p) == 0 {
		return nil
	}
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	p = slices.Compact(p)
	if len(p) > maxProblems {
		p = append(slices.Clip(p[:maxProblems]), Problem{Position: Position{File: p[0].File}, Message: "and more"})
	}
	return &bourse.Error{Code: bourse.CodeInvalid, Message: p.Error(), Err: p}
}
