package sql

import (
	"io"
	"strings"
)

// jsonRows prints rows as a JSON array of objects, one per line. The array is closed only
// if the answer is complete, so that an incomplete answer is not valid JSON.
type jsonRows struct {
	w       io.Writer
	names   []string // column names, as JSON
	printed bool     // at least one row was printed
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
	if !j.printed {
		lead = "[\n"
	}
	j.printed = true
	_, err = io.WriteString(j.w, lead+object)
	return err
}

func (j *jsonRows) flush() error { return nil }

func (j *jsonRows) end() error {
	tail := "\n]\n"
	if !j.printed {
		tail = "[]\n"
	}
	_, err := io.WriteString(j.w, tail)
	return err
}

func jsonNames(columns []string) ([]string, error) {
	var out []string
	for _, name := range uniqueNames(columns) {
		text, err := safeJSON(name)
		if err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, nil
}

// jsonObject encodes a row as a JSON object with its columns in order.
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
