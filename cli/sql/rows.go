package sql

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// changedRow is one row to be printed, and what became of it when it is watched.
type changedRow struct {
	kind   string // row, insert, update or delete
	change uint64 // 0 for rows that were there from the beginning
	id     int64  // within the subscription
	cells  []any
}

// The kinds of rows that no change brought.
const (
	kindRow     = "row"     // was there from the beginning
	kindRestart = "restart" // none: what was printed is void, and all rows follow again
)

func rowOf(r *machinesapi.ViewRow) changedRow {
	return changedRow{kind: kindRow, id: r.ID, cells: r.Cells}
}

// rowPrinter prints the rows of one answer.
type rowPrinter interface {
	begin(columns []string) error
	row(r changedRow) error
	flush() error // what is held back; the answer may go on
	end() error   // the answer is whole
}

// newRowPrinter returns the printer for an answer that is not watched.
func newRowPrinter(s *cli.Shell, f options) rowPrinter {
	switch {
	case s.JSON:
		return &jsonRows{w: s.Out}
	case f.csv:
		return &csvRows{w: s.Out, tty: s.Out.TTY}
	}
	return &tableRows{out: s.Out}
}

// cellText shows a value. Text is shown as it is; the caller makes it safe for
// where it goes.
func cellText(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case string:
		return v
	case json.Number:
		return v.String()
	case machinesapi.ViewBlob:
		return fmt.Sprintf("x'%x'", v.Blob)
	case bool:
		return strconv.FormatBool(v)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

// isNumber reports whether a value is aligned to the right.
func isNumber(v any) bool {
	_, ok := v.(json.Number)
	return ok
}

// safeJSON encodes a value so that no character of it can drive a terminal:
// those that [clean] would escape are written as JSON escapes, which is the
// same JSON.
func safeJSON(v any) (string, error) {
	var raw bytes.Buffer
	e := json.NewEncoder(&raw)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	text := bytes.TrimSpace(raw.Bytes())
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		text = text[n:]
		if !unicode.IsControl(r) && !unicode.Is(unicode.Cf, r) {
			b.WriteRune(r)
			continue
		}
		if r > 0xffff { // as two surrogates
			hi, lo := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
			continue
		}
		fmt.Fprintf(&b, `\u%04x`, r)
	}
	return b.String(), nil
}

// distinct returns a name of its own for every column: a second "id" becomes "id:1".
func distinct(columns []string) []string {
	seen := map[string]bool{}
	out := make([]string, len(columns))
	for i, name := range columns {
		for n, base := 1, name; seen[name]; n++ {
			name = base + ":" + strconv.Itoa(n)
		}
		seen[name], out[i] = true, name
	}
	return out
}
