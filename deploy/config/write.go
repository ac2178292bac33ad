package config

import (
	"bytes"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/bourse-dev/bourse"
)

// TOML returns a JSON object as TOML: what a release keeps as its definition, or what
// [Config.JSON] returns, as the file that a person writes. Members stay in their order,
// values before tables; nulls are left out. CodeInvalid for what is no JSON object.
func TOML(object []byte) ([]byte, error) {
	root, err := read("definition.json", object)
	if problem, ok := errors.AsType[Problem](err); ok {
		return nil, Problems{problem}.err()
	}
	if err != nil {
		return nil, err
	}
	if root.kind != table {
		return nil, bourse.Errorf(bourse.CodeInvalid, "a configuration is a JSON object, and this is %s", root.kind)
	}
	var w tomlWriter
	w.table("", root)
	return bytes.TrimLeft(w.Bytes(), "\n"), nil
}

type tomlWriter struct{ bytes.Buffer }

// isTables reports whether a value is written as [[name]].
func isTables(n *node) bool {
	for _, item := range n.items {
		if item.kind != table {
			return false
		}
	}
	return n.kind == list && len(n.items) > 0
}

// onlyTables reports whether a table is there by the headers of those in it.
func (n *node) onlyTables() bool {
	for _, m := range n.members {
		if m.value.kind != table && !isTables(m.value) {
			return false
		}
	}
	return len(n.members) > 0
}

// table writes the members of a table, values first: behind a header they would be its.
func (w *tomlWriter) table(path string, n *node) {
	for _, m := range n.members {
		if v := m.value; v.kind != null && v.kind != table && !isTables(v) {
			w.WriteString(tomlKey(m.name) + " = ")
			w.value(v)
			w.WriteByte('\n')
		}
	}
	for _, m := range n.members {
		below := path + tomlKey(m.name)
		switch {
		case m.value.kind == table:
			if !m.value.onlyTables() {
				w.WriteString("\n[" + below + "]\n")
			}
			w.table(below+".", m.value)
		case isTables(m.value):
			for _, item := range m.value.items {
				w.WriteString("\n[[" + below + "]]\n")
				w.table(below+".", item)
			}
		}
	}
}

func (w *tomlWriter) value(n *node) {
	switch n.kind {
	case text:
		w.WriteString(tomlText(n.text))
	case whole:
		w.WriteString(strconv.FormatInt(n.whole, 10))
	case fraction:
		written := strconv.FormatFloat(n.real, 'f', -1, 64)
		if !strings.Contains(written, ".") {
			written += ".0"
		}
		w.WriteString(written)
	case truth, date:
		w.WriteString(n.text)
	case list:
		w.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				w.WriteString(", ")
			}
			w.value(item)
		}
		w.WriteByte(']')
	case table:
		w.WriteByte('{')
		comma := " "
		for _, m := range n.members {
			if m.value.kind != null {
				w.WriteString(comma + tomlKey(m.name) + " = ")
				w.value(m.value)
				comma = ", "
			}
		}
		w.WriteString(" }")
	case null:
		w.WriteString(`""`) // in a list, which has no holes
	}
}

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func tomlKey(name string) string {
	if bareKey.MatchString(name) {
		return name
	}
	return tomlText(name)
}

// tomlText writes a text on one line.
func tomlText(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsControl(r):
			b.WriteString(`\u`)
			b.WriteString(strings.Repeat("0", 4-len(strconv.FormatInt(int64(r), 16))))
			b.WriteString(strconv.FormatInt(int64(r), 16))
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
