package config

import (
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/bourse-dev/bourse"
)

// Bounds of a file.
const (
	MaxBytes = 1 << 20
	maxDepth = 32     // of tables and lists
	maxNodes = 10_000 // values, those that YAML's aliases repeat included; the time that TOML takes grows with their square
)

// kind is what a value is written as.
type kind string

const (
	null     kind = "null"
	text     kind = "a text"
	whole    kind = "a whole number"
	fraction kind = "a number"
	truth    kind = "true or false"
	date     kind = "a date"
	list     kind = "a list"
	table    kind = "a table"
)

// node is a value with its position, whatever syntax it was written in.
type node struct {
	kind    kind
	at      Position
	text    string // of a text; as written of the others but lists and tables
	whole   int64
	real    float64
	truth   bool
	items   []*node
	members []member
	byName  map[string]*node // the values of members
}

// member is a value of a table under its name.
type member struct {
	name  string
	at    Position // of the name
	value *node
}

// member returns a value of a table, nil when it has none of that name.
func (n *node) member(name string) *node { return n.byName[name] }

// put adds a value to a table that has none of its name.
func (n *node) put(name string, at Position, value *node) {
	if n.byName == nil {
		n.byName = map[string]*node{}
	}
	n.byName[name] = value
	n.members = append(n.members, member{name, at, value})
}

// shown is the value for an error's text.
func (n *node) shown() string {
	switch n.kind {
	case text:
		return bourse.Quoted(n.text)
	case list, table, null:
		return string(n.kind)
	case whole, fraction, truth, date:
	}
	return brief(n.text)
}

// brief is a word of a file, which may be of any length, for an error.
func brief(s string) string {
	const most = 200
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// source is a file that is being read.
type source struct {
	name  string
	text  []byte
	lines []int // where each begins
	nodes int
	last  struct{ offset, column int } // the position that was asked for last
}

func newSource(name string, text []byte) *source {
	s := &source{name: name, text: text, lines: []int{0}}
	s.last.column = 1
	for i, c := range text {
		if c == '\n' {
			s.lines = append(s.lines, i+1)
		}
	}
	return s
}

// at returns the position of a byte.
func (s *source) at(offset int) Position {
	offset = min(max(offset, 0), len(s.text))
	low, high := 0, len(s.lines)
	for high-low > 1 {
		if mid := (low + high) / 2; s.lines[mid] <= offset {
			low = mid
		} else {
			high = mid
		}
	}
	from, column := s.lines[low], 1
	if from <= s.last.offset && s.last.offset <= offset { // a line may be very long
		from, column = s.last.offset, s.last.column
	}
	column += utf8.RuneCount(s.text[from:offset])
	s.last.offset, s.last.column = offset, column
	return Position{s.name, low + 1, column}
}

// add makes a node, and refuses one too many or too deep.
func (s *source) add(k kind, at Position, depth int) (*node, error) {
	if s.nodes++; s.nodes > maxNodes {
		return nil, Problem{Position: at, Message: "more than " + strconv.Itoa(maxNodes) + " values"}
	}
	if depth > maxDepth {
		return nil, Problem{Position: at, Message: "nested deeper than " + strconv.Itoa(maxDepth)}
	}
	return &node{kind: k, at: at}, nil
}

// read makes the tree of a file by the syntax that its name says; TOML when it says none.
func read(name string, raw []byte) (*node, error) {
	s := newSource(name, raw)
	at := Position{File: name}
	if len(raw) > MaxBytes {
		return nil, Problem{Position: at, Message: strconv.Itoa(len(raw)) + " bytes, at most " + strconv.Itoa(MaxBytes)}
	}
	for rest, offset := raw, 0; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r == utf8.RuneError && size == 1 || r == 0 {
			return nil, Problem{Position: s.at(offset), Message: "no text: use UTF-8 without NUL bytes"}
		}
		rest, offset = rest[size:], offset+size
	}
	switch path.Ext(name) {
	case ".json":
		return s.json()
	case ".yaml", ".yml":
		return s.yaml()
	}
	return s.toml()
}
