package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/bourse-dev/bourse"
)

// Position is a position in a file. Line and Column count from 1, and Column counts characters, not bytes. If both
// are 0, the Position denotes the whole file.
type Position struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
}

// String returns the position in the format that compilers use, for example fly.toml:3:5.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Warning reports a field that has no effect, or has a different effect than in other
// clients.
type Warning struct {
	Position
	Field   string `json:"field"` // for example services[0].internal_port
	Message string `json:"message"`
}

// String formats the warning on one line.
func (w Warning) String() string { return line(w.Position, w.Field, w.Message) }

// Problem is an error in a file.
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

// Problems contains all errors in a file, sorted by position. Use errors.AsType to find it
// in an error that this package returns.
type Problems []Problem

// Error returns one line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}

// maxProblems is the maximum number of reported problems.
const maxProblems = 32

// err returns the problems as one error with code invalid, or nil if there are none.
func (p Problems) err() error {
	if len(p) == 0 {
		return nil
	}
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	p = slices.Compact(p)
	if len(p) > maxProblems {
		p = append(slices.Clip(p[:maxProblems]), Problem{Position: Position{File: p[0].File}, Message: "and more problems"})
	}
	return &bourse.Error{Code: bourse.CodeInvalid, Message: p.Error(), Err: p}
}

// isPermitted reports whether a field is permitted in this file. It adds a problem if only
// bourse.toml may contain the field, and a warning if the field has no effect.
func (d *decoder) isPermitted(n *yaml.Node, w where) bool {
	f := fieldAt(w.field)
	switch {
	case f == nil:
	case f.BourseOnly && !d.ours:
		d.problem(n, w.path, "flyctl does not support this field: use it in a file named bourse.toml, which may also contain all fields of fly.toml")
		return false
	case f.Treatment == Unsupported && f.asked(n) && !d.hasWarning(w.field):
		d.warned[w.field] = true
		d.warn(n, w.path, f.Text)
	}
	return true
}

// hasWarning reports whether a field or an enclosing table already has a warning.
func (d *decoder) hasWarning(field string) bool {
	for {
		if d.warned[field] {
			return true
		}
		dot := strings.LastIndexByte(field, '.')
		if dot < 0 {
			return false
		}
		field = field[:dot]
	}
}

// asked reports whether the field's value n requests something. If f.NoEffect lists values, all other values request
// something. If f.NoEffect is empty, asked returns the result of hasEffect.
func (f *Field) asked(n *yaml.Node) bool {
	if len(f.NoEffect) > 0 {
		return !slices.Contains(f.NoEffect, n.Value)
	}
	return hasEffect(n)
}

func (d *decoder) warn(n *yaml.Node, field, message string) {
	if len(d.warnings) < maxProblems {
		d.warnings = append(d.warnings, Warning{d.position(n), field, message})
	}
}
