package query

import (
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"zombiezen.com/go/sqlite"
)

// record is a row encoded as JSON, together with the end position of each value.
type record struct {
	text []byte // the row as a JSON array
	ends []int
}

// read reads the statement's current row, replacing the record's contents.
func (r *record) read(stmt *sqlite.Stmt) {
	r.text, r.ends = append(r.text[:0], '['), r.ends[:0]
	for i := range stmt.ColumnCount() {
		if i > 0 {
			r.text = append(r.text, ',')
		}
		r.text = appendColumn(r.text, stmt, i)
		r.ends = append(r.ends, len(r.text))
	}
	r.text = append(r.text, ']')
}

// clone returns a copy of r that remains unchanged when r.read is called again.
func (r *record) clone() record { return record{slices.Clone(r.text), slices.Clone(r.ends)} }

// value returns the JSON of the i-th column.
func (r *record) value(i int) []byte {
	start := 1
	if i > 0 {
		start = r.ends[i-1] + 1
	}
	return r.text[start:r.ends[i]]
}

func appendColumn(b []byte, stmt *sqlite.Stmt, i int) []byte {
	switch stmt.ColumnType(i) {
	case sqlite.TypeInteger:
		return strconv.AppendInt(b, stmt.ColumnInt64(i), 10)
	case sqlite.TypeFloat:
		return appendFloat(b, stmt.ColumnFloat(i))
	case sqlite.TypeText:
		return appendString(b, stmt.ColumnText(i))
	case sqlite.TypeBlob:
		blob := make([]byte, stmt.ColumnLen(i))
		stmt.ColumnBytes(i, blob)
		b = append(b, `{"blob":"`...)
		b = base64.StdEncoding.AppendEncode(b, blob)
		return append(b, `"}`...)
	case sqlite.TypeNull:
	}
	return append(b, "null"...)
}

// appendFloat appends a number that always has a fraction or exponent, so that a REAL can be distinguished from an
// INTEGER: 1.0, not 1. SQLite has no NaN.
func appendFloat(b []byte, f float64) []byte {
	switch {
	case math.IsInf(f, 1):
		return append(b, `"Inf"`...)
	case math.IsInf(f, -1):
		return append(b, `"-Inf"`...)
	}
	start := len(b)
	b = strconv.AppendFloat(b, f, 'g', -1, 64)
	for _, c := range b[start:] {
		if c == '.' || c == 'e' {
			return b
		}
	}
	return append(b, ".0"...)
}

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string, as encoding/json does without HTML escaping. It does not allocate memory
// itself.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				b = append(append(b, s[start:i]...), `\ufffd`...)
				start = i + 1
			}
			i += size
			continue
		}
		i++
		if c >= ' ' && c != '"' && c != '\\' && c != 0x7f {
			continue
		}
		b = append(b, s[start:i-1]...)
		start = i
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		case '\t':
			b = append(b, `\t`...)
		case '\r':
			b = append(b, `\r`...)
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(b, s[start:]...), '"')
}

// appendStrings appends a JSON array of strings.
func appendStrings(b []byte, list []string) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, s)
	}
	return append(b, ']')
}
