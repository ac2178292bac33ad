package cli

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// viewTable is what can be asked.
type viewTable struct {
	Table   string   `json:"table"`
	Columns []string `json:"columns"`
}

// schemaQuery lists the tables for people and their columns, in order.
const schemaQuery = `SELECT m.name, c.name FROM sqlite_schema AS m, pragma_table_info(m.name) AS c WHERE m.type = 'view' ORDER BY m.name, c.cid`

// viewTables asks the server what can be asked.
func (s *shell) viewTables(ctx context.Context) ([]viewTable, error) {
	var out []viewTable
	for line, err := range s.client().Query(ctx, machinesapi.ViewQuery{Statement: schemaQuery}) {
		if err != nil {
			return nil, err
		}
		if line.Row == nil || len(line.Row.Cells) != 2 {
			continue
		}
		table, column := cellText(line.Row.Cells[0]), cellText(line.Row.Cells[1])
		if n := len(out); n == 0 || out[n-1].Table != table {
			out = append(out, viewTable{Table: table})
		}
		last := &out[len(out)-1]
		last.Columns = append(last.Columns, column)
	}
	return out, nil
}

// listTables shows what can be asked.
func (s *shell) listTables(ctx context.Context, f sqlFlags) error {
	tables, err := s.viewTables(ctx)
	if err != nil {
		return err
	}
	switch {
	case s.json:
		if tables == nil {
			tables = []viewTable{}
		}
		return s.printJSON(tables)
	case f.csv:
		c := csvRows{w: s.Out, tty: s.Out.TTY}
		err := c.begin([]string{"table", "column"})
		for _, t := range tables {
			for _, column := range t.Columns {
				if err == nil {
					err = c.row(sqlRow{cells: []any{t.Table, column}})
				}
			}
		}
		return err
	}
	if err := s.printTables(tables); err != nil {
		return err
	}
	if s.Err.TTY {
		s.say(`ask with: bourse sql "SELECT * FROM machines"`)
	}
	return nil
}

// printTables prints the name of each table and beside it its columns, as many
// a line as fit.
func (s *shell) printTables(tables []viewTable) error {
	const usualWidth = 80
	width, _ := s.Out.size()
	if width <= 0 {
		width = usualWidth
	}
	label := 0
	for _, t := range tables {
		label = max(label, utf8.RuneCountInString(clean(t.Table)))
	}
	var b strings.Builder
	for _, t := range tables {
		lead := pad(clean(t.Table), label, false)
		for _, line := range wrapWords(t.Columns, max(2*leastWidth, width-label-len(columnGap))) {
			fmt.Fprintf(&b, "%s%s%s\n", lead, columnGap, line)
			lead = strings.Repeat(" ", label)
		}
	}
	_, err := io.WriteString(s.Out, b.String())
	return err
}

// wrapWords writes words with commas between them into lines of a width.
func wrapWords(words []string, width int) []string {
	var lines []string
	line := ""
	for i, word := range words {
		word = clean(word)
		if i < len(words)-1 {
			word += ","
		}
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// missing finds in SQLite's words what a statement asked for and is not there.
var missing = regexp.MustCompile(`no such (table|column): ([^\s,;:]+)`)

// withTables adds to an error about a table or column that is not there which
// ones there are.
func (s *shell) withTables(ctx context.Context, err error) error {
	if bourse.CodeOf(err) != bourse.CodeInvalid {
		return err
	}
	m := missing.FindStringSubmatch(bourse.MessageOf(err))
	if m == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	tables, failed := s.viewTables(ctx)
	if failed != nil || len(tables) == 0 {
		return hint(err, "bourse sql --tables lists what there is")
	}
	if m[1] == "table" {
		return hint(err, tableHints(m[2], tables)...)
	}
	return hint(err, columnHints(m[2], tables)...)
}

func tableHints(wanted string, tables []viewTable) []string {
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = clean(t.Table)
	}
	hints := []string{"tables: " + strings.Join(names, ", ")}
	if near := nearest(wanted, names); near != "" {
		hints = append([]string{"did you mean " + near + "?"}, hints...)
	}
	return hints
}

func columnHints(wanted string, tables []viewTable) []string {
	_, column, qualified := strings.Cut(wanted, ".")
	if !qualified {
		column = wanted
	}
	var have []string // tables that have such a column
	var names []string
	for _, t := range tables {
		if slices.Contains(t.Columns, column) {
			have = append(have, clean(t.Table))
		}
		names = append(names, t.Columns...)
	}
	hints := []string{"bourse sql --tables lists the columns; text stands in single quotes: 'gru'"}
	if have != nil {
		return append([]string{clean(column) + " is a column of " + strings.Join(have, ", ")}, hints...)
	}
	if near := nearest(column, names); near != "" {
		return append([]string{"did you mean " + clean(near) + "?"}, hints...)
	}
	return hints
}

// nearest gives the name that differs from the wanted one by a slip at most:
// two letters, or an ending.
func nearest(wanted string, names []string) string {
	wanted = strings.ToLower(wanted)
	best, least := "", 3
	for _, name := range names {
		lower := strings.ToLower(name)
		d := distance(wanted, lower)
		if len(wanted) > 2 && strings.HasPrefix(lower, wanted) {
			d = min(d, 1)
		}
		if d < least && d < len(lower) {
			best, least = name, d
		}
	}
	return best
}

// distance counts the letters to change, add or remove (Levenshtein). Long
// words are not worth the time.
func distance(a, b string) int {
	const most = 64
	if len(a) > most || len(b) > most {
		return most
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			next := diagonal
			if a[i] != b[j] {
				next = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
