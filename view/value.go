package view

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// column is one column of a row with its value. A nil value says that the
// column has its default: such columns stand in changes only, never in what a
// row is, so that a column that is absent and one that has its default are the
// same, also to a release that does not know the column.
type column struct {
	name  string
	value Value
}

// columns are in order of name, each once.
type columns []column

func byName(a, b column) int { return strings.Compare(a.name, b.name) }

// get gives the value of a column, nil for one that has its default.
func (c columns) get(name string) Value {
	i, ok := slices.BinarySearchFunc(c, name, func(e column, name string) int { return strings.Compare(e.name, name) })
	if !ok {
		return nil
	}
	return c[i].value
}

// with gives c after a change.
func (c columns) with(change columns) columns {
	out := make(columns, 0, len(c)+len(change))
	for len(c) > 0 || len(change) > 0 {
		order := 0
		switch {
		case len(c) == 0:
			order = 1
		case len(change) == 0:
			order = -1
		default:
			order = byName(c[0], change[0])
		}
		if order < 0 {
			out, c = append(out, c[0]), c[1:]
			continue
		}
		if change[0].value != nil {
			out = append(out, change[0])
		}
		change = change[1:]
		if order == 0 {
			c = c[1:]
		}
	}
	return out
}

// until gives the change that makes want of c.
func (c columns) until(want columns) columns {
	var out columns
	for _, w := range want {
		if !equalValues(c.get(w.name), w.value) {
			out = append(out, w)
		}
	}
	for _, have := range c {
		if want.get(have.name) == nil {
			out = append(out, column{name: have.name})
		}
	}
	slices.SortFunc(out, byName)
	return out
}

// set gives c without the columns that have their default.
func (c columns) set() columns {
	return slices.DeleteFunc(slices.Clone(c), func(e column) bool { return e.value == nil })
}

// size is about what the columns take on the wire and in the file.
func (c columns) size() int {
	n := 0
	for _, e := range c {
		n += len(e.name) + valueSize(e.value) + 4
	}
	return n
}

func (c columns) asMap() map[string]Value {
	if len(c) == 0 {
		return nil
	}
	m := make(map[string]Value, len(c))
	for _, e := range c {
		m[e.name] = e.value
	}
	return m
}

func valueSize(v Value) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case []byte:
		return len(v)
	}
	return 8
}

func equalValues(a, b Value) bool {
	x, ok := a.([]byte)
	y, also := b.([]byte)
	if ok && also {
		return bytes.Equal(x, y)
	}
	return ok == also && a == b
}

// scalar brings v to one of the types of a Value. Numbers that SQLite would
// give back changed are refused.
func scalar(v any) (Value, error) {
	switch v := v.(type) {
	case nil, int64, []byte:
		return v, nil
	case string:
		return v, checkText(v)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("%v is no value", v)
		}
		if v == 0 {
			v = 0 // SQLite knows no negative zero
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
	return nil, fmt.Errorf("a value of type %T", v)
}

// checkText refuses what SQLite's functions stumble over.
func checkText(s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("text that is not UTF-8")
	}
	if strings.IndexByte(s, 0) >= 0 {
		return fmt.Errorf("text with a zero byte")
	}
	return nil
}

// maxDepth of JSON: SQLite's own limit is 1000, that of its readers unknown.
const maxDepth = 64

// checkJSON refuses what would make a SQL query over the column fail.
func checkJSON(s string) error {
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
				return fmt.Errorf("JSON nested deeper than %d", maxDepth)
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return nil
}

// encodeExtra writes columns that this release does not know as a JSON object
// from which decodeExtra gets the same values again: a number with a point or
// exponent is a float64, one without an int64, {"base64": …} are bytes.
func encodeExtra(c columns) (string, error) {
	b := []byte{'{'}
	for i, e := range c {
		if i > 0 {
			b = append(b, ',')
		}
		name, err := json.Marshal(e.name)
		if err != nil {
			return "", err
		}
		b = append(append(b, name...), ':')
		switch v := e.value.(type) {
		case int64:
			b = strconv.AppendInt(b, v, 10)
		case float64:
			s := strconv.FormatFloat(v, 'g', -1, 64)
			if !strings.ContainsAny(s, ".e") {
				s += ".0"
			}
			b = append(b, s...)
		case []byte:
			b = append(b, `{"base64":"`...)
			b = base64.StdEncoding.AppendEncode(b, v)
			b = append(b, `"}`...)
		default:
			text, err := json.Marshal(v)
			if err != nil {
				return "", err
			}
			b = append(b, text...)
		}
	}
	return string(append(b, '}')), nil
}

func decodeExtra(s string) (columns, error) {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		return nil, err
	}
	out := make(columns, 0, len(m))
	for name, v := range m {
		value, err := decodeExtraValue(v)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", name, err)
		}
		out = append(out, column{name, value})
	}
	slices.SortFunc(out, byName)
	return out, nil
}

func decodeExtraValue(v any) (Value, error) {
	switch v := v.(type) {
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return v.Float64()
		}
		return v.Int64()
	case map[string]any:
		text, ok := v["base64"].(string)
		if !ok {
			return nil, fmt.Errorf("an object without base64")
		}
		return base64.StdEncoding.DecodeString(text)
	}
	return scalar(v)
}

// intOf gives a whole number, 0 for anything else.
func intOf(v Value) int64 {
	n, _ := v.(int64)
	return n
}

func textOf(v Value) string {
	s, _ := v.(string)
	return s
}
