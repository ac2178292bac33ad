package sql

import (
	"io"
	"strings"
)

// jsonRows prints rows as a JSON array of objects, one a line. The array is
// closed when the answer is whole, so that a part of it is never taken for
// all.
type jsonRows struct {
	w     io.Writer
	names []string // encoded
	some  bool
}

func (j *jsonRows) begin(columns []string) error {
	var err error
	j.names, err = jsonNames(columns)
	return err
}

func (j *jsonRows) row(r changedRow) error {
	object, err := jsonObject(j.names, r.cells)
	if err != nil {
		return err
	}
	lead := ",\n"
	if !j.some {
		lead = "[\n"
	}
	j.some = true
	_, err = io.WriteString(j.w, lead+object)
	return err
}

func (j *jsonRows) flush() error { return nil }

func (j *jsonRows) end() error {
	tail := "\n]\n"
	if !j.some {
		tail = "[]\n"
	}
	_, err := io.WriteString(j.w, tail)
	return err
}

func jsonNames(columns []string) ([]string, error) {
	var out []string
	for _, name := range distinct(columns) {
		text, err := safeJSON(name)
		if err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, nil
}

// jsonObject encodes a row, its columns in their order.
func jsonObject(names []string, cells []any) (string, error) {
	var b strings.Builder
	b.WriteByte('{')
	for i, v := range cells {
		if i >= len(names) {
			break
		}
		if i > 0 {
			b.WriteByte(',')
		}
		text, err := safeJSON(v)
		if err != nil {
			return "", err
		}
		b.WriteString(names[i] + ":" + text)
	}
	b.WriteByte('}')
	return b.String(), nil
}
