package sql

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// schemaTimeout limits the time for fetching the schema when an error needs a hint about
// it.
const schemaTimeout = time.Second

// tableInfo describes a table of the view.
type tableInfo struct {
	Table   string   `json:"table"`
	About   string   `json:"about,omitempty"` // description of the table's contents
	Columns []string `json:"columns"`
}

// schemaQuery lists the public tables, with their columns in order. Each table's
// description is the comment after AS in the schema.
const schemaQuery = `SELECT m.name, c.name, CASE WHEN m.sql LIKE 'CREATE VIEW % AS -- %' THEN
	substr(m.sql, instr(m.sql, '-- ') + 3, instr(m.sql, char(10)) - instr(m.sql, '-- ') - 3) ELSE '' END
	FROM sqlite_schema AS m, pragma_table_info(m.name) AS c WHERE m.type = 'view' ORDER BY m.name, c.cid`

// viewTables fetches the list of the view's tables from the API.
func viewTables(ctx context.Context, s *cli.Shell) ([]tableInfo, error) {
	var out []tableInfo
	for line, err := range s.Client().Query(ctx, machinesapi.ViewQuery{Statement: schemaQuery}) {
		if err != nil {
			return nil, err
		}
		if line.Row == nil || len(line.Row.Cells) != 3 {
			continue
		}
		table, column := cellText(line.Row.Cells[0]), cellText(line.Row.Cells[1])
		if n := len(out); n == 0 || out[n-1].Table != table {
			out = append(out, tableInfo{Table: table, About: cellText(line.Row.Cells[2])})
		}
		last := &out[len(out)-1]
		last.Columns = append(last.Columns, column)
	}
	return out, nil
}

// listTables prints the tables and their columns.
func listTables(ctx context.Context, s *cli.Shell, f options) error {
	tables, err := viewTables(ctx, s)
	if err != nil {
		return err
	}
	switch {
	case s.JSON:
		if tables == nil {
			tables = []tableInfo{}
		}
		return s.PrintJSON(tables)
	case f.csv:
		c := csvRows{w: s.Out, tty: s.Out.TTY}
		err := c.begin([]string{"table", "column"})
		for _, t := range tables {
			for _, column := range t.Columns {
				if err == nil {
					err = c.row(changedRow{cells: []any{t.Table, column}})
				}
			}
		}
		return err
	}
	if err := printTables(s, tables); err != nil {
		return err
	}
	if s.Err.TTY {
		s.Note(`query with: bourse sql "SELECT * FROM machines"`)
	}
	return nil
}

// printTables prints the name of each table, with its description and columns next to it.
func printTables(s *cli.Shell, tables []tableInfo) error {
	const usualWidth = 80
	width, _ := s.Out.Size()
	if width <= 0 {
		width = usualWidth
	}
	label := 0
	for _, t := range tables {
		label = max(label, utf8.RuneCountInString(cli.Clean(t.Table)))
	}
	var b strings.Builder
	for _, t := range tables {
		lead := cli.Pad(cli.Clean(t.Table), label, false)
		space := max(2*cli.MinWidth, width-label-len(cli.ColumnGap))
		for _, line := range append(wrapWords(strings.Fields(t.About), "", space), wrapWords(t.Columns, ",", space)...) {
			fmt.Fprintf(&b, "%s%s%s\n", lead, cli.ColumnGap, line)
			lead = strings.Repeat(" ", label)
		}
	}
	_, err := io.WriteString(s.Out, b.String())
	return err
}

// wrapWords wraps words into lines of the given width. mark is appended to each word
// except the last one.
func wrapWords(words []string, mark string, width int) []string {
	var lines []string
	line := ""
	for i, word := range words {
		word = cli.Clean(word)
		if i < len(words)-1 {
			word += mark
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
	if line == "" {
		return lines
	}
	return append(lines, line)
}

// missingName matches SQLite's errors about missing tables and columns.
var missingName = regexp.MustCompile(`no such (table|column): ([^\s,;:]+)`)

// withTables adds the names of existing tables or columns to an error about a missing one.
func withTables(ctx context.Context, s *cli.Shell, err error) error {
	if bourse.CodeOf(err) != bourse.CodeInvalid {
		return err
	}
	m := missingName.FindStringSubmatch(bourse.MessageOf(err))
	if m == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, schemaTimeout)
	defer cancel()
	tables, failed := viewTables(ctx, s)
	if failed != nil || len(tables) == 0 {
		return cli.Hint(err, "bourse sql --tables")
	}
	if m[1] == "table" {
		return cli.Hint(err, tableHints(m[2], tables)...)
	}
	return cli.Hint(err, columnHints(m[2], tables)...)
}

func tableHints(wanted string, tables []tableInfo) []string {
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = cli.Clean(t.Table)
	}
	hints := []string{"one of the tables " + strings.Join(names, ", ")}
	if near := cli.Nearest(wanted, names); near != "" {
		hints = append([]string{"table " + near}, hints...)
	}
	return hints
}

func columnHints(wanted string, tables []tableInfo) []string {
	_, column, qualified := strings.Cut(wanted, ".")
	if !qualified {
		column = wanted
	}
	var have []string // tables that have a column with the missing name
	var names []string
	for _, t := range tables {
		if slices.Contains(t.Columns, column) {
			have = append(have, cli.Clean(t.Table))
		}
		names = append(names, t.Columns...)
	}
	hints := []string{"bourse sql --tables", "single quotes around text, as in 'gru'"}
	if have != nil {
		return append([]string{cli.Clean(column) + " is a column of " + strings.Join(have, ", ")}, hints...)
	}
	if near := cli.Nearest(column, names); near != "" {
		return append([]string{"column " + cli.Clean(near)}, hints...)
	}
	return hints
}
