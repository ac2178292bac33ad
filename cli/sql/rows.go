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

// changedRow is a row to print. For a watched query, it also describes the change.
type changedRow struct {
	kind   string // row, insert, update or delete
	change uint64 // number of the change; 0 for rows of the initial answer
	id     int64  // identifies the row within the subscription
	cells  []any
}

// Kinds of rows that are not changes.
const (
	kindRow     = "row"     // a row of the initial answer
	kindRestart = "restart" // not a row: discard earlier output, because all rows are printed again
)

func rowOf(r *machinesapi.ViewRow) changedRow {
	return changedRow{kind: kindRow, id: r.ID, cells: r.Cells}
}

// rowPrinter prints the rows of an answer.
type rowPrinter interface {
	begin(columns []string) error
	row(r changedRow) error
	flush() error // print pending rows; more may follow
	end() error   // the answer is complete, so finish the output
}

// newRowPrinter returns the printer for a query that is not watched.
func newRowPrinter(s *cli.Shell, f options) rowPrinter {
	switch {
	case s.JSON:
		return &jsonRows{w: s.Out}
	case f.csv:
		return &csvRows{w: s.Out, tty: s.Out.TTY}
	}
	return &tableRows{out: s.Out}
}

// cellText formats a value. It does not escape control characters, because each output
// format escapes them differently.
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

// isNumber reports whether v is a number. Numbers are right-aligned.
func isNumber(v any) bool {
	_, ok := v.(json.Number)
	return ok
}

// safeJSON encodes a value as JSON that is safe to print to a terminal. Characters that
// [cli.Clean] would escape become JSON escapes.
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
		if r > 0xffff { // needs a surrogate pair
			hi, lo := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
			continue
		}
		fmt.Fprintf(&b, `\u%04x`, r)
	}
	return b.String(), nil
}

// uniqueNames makes column names unique. For example, it renames a second "id" to "id:1".
func uniqueNames(columns []string) []string {
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
