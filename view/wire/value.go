package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Column is a column of a row, together with its value. A nil value means the column's default, and
// occurs only in changes. A complete row omits columns that have their default values, so that
// releases that support different columns still produce equal rows.
type Column struct {
	Name  string
	Value Value
}

// Columns is a list of columns, sorted by name and without duplicates.
type Columns []Column

// ByName compares columns by their names.
func ByName(a, b Column) int { return strings.Compare(a.Name, b.Name) }

// Get returns the value of the named column, or nil if the column has its
// default value.
func (c Columns) Get(name string) Value {
	i, ok := slices.BinarySearchFunc(c, name, func(e Column, name string) int { return strings.Compare(e.Name, name) })
	if !ok {
		return nil
	}
	return c[i].Value
}

// With returns a copy of c with a change applied.
func (c Columns) With(change Columns) Columns {
	out := make(Columns, 0, len(c)+len(change))
	for len(c) > 0 || len(change) > 0 {
		order := 0
		switch {
		case len(c) == 0:
			order = 1
		case len(change) == 0:
			order = -1
		default:
			order = ByName(c[0], change[0])
		}
		if order < 0 {
			out, c = append(out, c[0]), c[1:]
			continue
		}
		if change[0].Value != nil {
			out = append(out, change[0])
		}
		change = change[1:]
		if order == 0 {
			c = c[1:]
		}
	}
	return out
}

// Diff returns the change that would turn c into want.
func (c Columns) Diff(want Columns) Columns {
	var out Columns
	for _, w := range want {
		if !EqualValues(c.Get(w.Name), w.Value) {
			out = append(out, w)
		}
	}
	for _, have := range c {
		if want.Get(have.Name) == nil {
			out = append(out, Column{Name: have.Name})
		}
	}
	slices.SortFunc(out, ByName)
	return out
}

// Set returns a copy of c without the columns that have their default values.
func (c Columns) Set() Columns {
	return slices.DeleteFunc(slices.Clone(c), func(e Column) bool { return e.Value == nil })
}

// Size returns the approximate size of the columns in bytes, on the wire and in the file.
func (c Columns) Size() int {
	n := 0
	for _, e := range c {
		n += len(e.Name) + ValueSize(e.Value) + 4
	}
	return n
}

// Map returns the columns as a map, the form used by Row.Columns.
func (c Columns) Map() map[string]Value {
	if len(c) == 0 {
		return nil
	}
	m := make(map[string]Value, len(c))
	for _, e := range c {
		m[e.Name] = e.Value
	}
	return m
}

// ValueSize returns the approximate size of a value in bytes.
func ValueSize(v Value) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case []byte:
		return len(v)
	}
	return 8
}

// EqualValues reports whether two values are equal.
func EqualValues(a, b Value) bool {
	x, ok := a.([]byte)
	y, also := b.([]byte)
	if ok && also {
		return bytes.Equal(x, y)
	}
	return ok == also && a == b
}

// Scalar converts v to one of the types that a Value can have. It returns an error if v has another
// type, or is a number or text that SQLite cannot store unchanged.
func Scalar(v any) (Value, error) {
	switch v := v.(type) {
	case nil, int64, []byte:
		return v, nil
	case string:
		return v, CheckText(v)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("%v is not a valid value", v)
		}
		if v == 0 {
			v = 0 // SQLite has no negative zero
		}
		return v, nil
	case int:
		return int64(v), nil
	case bool:
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	}
	return nil, fmt.Errorf("values of type %T are not supported", v)
}

// CheckText returns an error if SQLite's functions cannot handle the text.
func CheckText(s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("the text is not valid UTF-8")
	}
	if strings.IndexByte(s, 0) >= 0 {
		return fmt.Errorf("the text contains a zero byte")
	}
	return nil
}

// maxDepth is the maximum nesting depth of JSON. SQLite's limit is 1000, but other programs that
// read the JSON may have lower limits.
const maxDepth = 64

// CheckJSON returns an error if s is not JSON, or is so deeply nested that queries of the column
// might fail.
func CheckJSON(s string) error {
	if !json.Valid([]byte(s)) {
		return fmt.Errorf("malformed JSON")
	}
	depth, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			if depth++; depth > maxDepth {
				return fmt.Errorf("the JSON is nested deeper than %d levels", maxDepth)
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return nil
}

// intOf returns v as an integer, or 0 if it has another type.
func intOf(v Value) int64 {
	n, _ := v.(int64)
	return n
}

// TextOf returns v as a string, or "" if it has another type.
func TextOf(v Value) string {
	s, _ := v.(string)
	return s
}
