package sql

import (
	"io"
	"strings"

	"github.com/bourse-dev/bourse/cli"
)

// csvRows prints rows as CSV with a header, according to RFC 4180. It does not use
// package encoding/csv, which cannot distinguish NULL from an empty string. If watched is
// set, the first column is "change".
type csvRows struct {
	w       io.Writer
	tty     bool // escape control characters, because the output is a terminal
	watched bool

	columns int
}

func (c *csvRows) begin(columns []string) error {
	c.columns = len(columns)
	fields := make([]string, len(columns))
	for i, name := range columns {
		fields[i] = c.field(name)
	}
	return c.line("change", fields)
}

func (c *csvRows) row(r changedRow) error {
	fields := make([]string, max(c.columns, len(r.cells)))
	for i, v := range r.cells {
		if v != nil {
			fields[i] = c.field(cellText(v))
		}
	}
	return c.line(r.kind, fields)
}

func (c *csvRows) flush() error { return nil }

func (c *csvRows) end() error { return nil }

func (c *csvRows) line(change string, fields []string) error {
	if c.watched {
		fields = append([]string{change}, fields...)
	}
	_, err := io.WriteString(c.w, strings.Join(fields, ",")+"\r\n")
	return err
}

func (c *csvRows) field(s string) string {
	if c.tty {
		s = cli.Clean(s)
	}
	if s == "" || strings.ContainsAny(s, ",\"\r\n") {
		return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
	}
	return s
}
