package sql

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/bourse-dev/bourse/cli"
)

// tableChunk is the number of rows that are aligned together. A long answer is printed in
// chunks as it arrives.
const tableChunk = 500

// tableRows prints rows as a table. On a terminal, long cells are shortened. If the table
// still does not fit, each row is printed as a list of its cells. If watched is set, the
// first column contains the kind of change.
type tableRows struct {
	out     cli.Stream
	watched bool

	grid  grid
	held  []changedRow
	begun bool // the header has been printed
	shown int  // number of rows printed as lists
}

func (t *tableRows) begin(columns []string) error {
	if t.watched {
		columns = append([]string{"change"}, columns...)
	}
	t.grid = newGrid(columns)
	if t.watched {
		t.grid.widths[0] = len(kindRestart)
		t.grid.right[0] = false
	}
	return nil
}

func (t *tableRows) row(r changedRow) error {
	t.held = append(t.held, r)
	if len(t.held) < tableChunk {
		return nil
	}
	return t.flush()
}

func (t *tableRows) flush() error {
	if len(t.held) == 0 {
		return nil
	}
	return t.write()
}

func (t *tableRows) end() error {
	if t.begun {
		return t.flush()
	}
	return t.write() // prints the header even if there are no rows
}

func (t *tableRows) write() error {
	width, _ := t.out.Size()
	rows := make([][]string, len(t.held))
	for i, r := range t.held {
		rows[i] = t.texts(r, width)
		t.grid.measure(rows[i], t.numbers(r))
	}
	t.held = t.held[:0]
	var b strings.Builder
	if fitted, ok := t.grid.fit(width); ok {
		if !t.begun {
			b.WriteString(fitted.line(t.grid.columns))
		}
		for _, row := range rows {
			b.WriteString(fitted.line(row))
		}
	} else {
		for _, row := range rows {
			t.shown++
			b.WriteString(t.grid.list(t.shown, row, width))
		}
	}
	t.begun = true
	_, err := io.WriteString(t.out, b.String())
	return err
}

// texts returns a row's cells, escaped for printing.
func (t *tableRows) texts(r changedRow, width int) []string {
	var out []string
	if t.watched {
		out = append(out, r.kind)
	}
	for _, v := range r.cells {
		out = append(out, shownCell(v, width))
	}
	return out
}

func (t *tableRows) numbers(r changedRow) []bool {
	var out []bool
	if t.watched {
		out = append(out, false)
	}
	for _, v := range r.cells {
		out = append(out, v == nil || isNumber(v))
	}
	return out
}

// shownCell formats a cell for a terminal of the given width; 0 means no limit.
func shownCell(v any, width int) string {
	text := cellText(v)
	if width > 0 {
		text = cli.Cut(text, width)
	}
	return cli.Clean(text)
}

// grid aligns cells in columns.
type grid struct {
	columns []string
	widths  []int
	right   []bool // columns whose cells have all been numbers so far
}

func newGrid(columns []string) grid {
	g := grid{widths: make([]int, len(columns)), right: make([]bool, len(columns))}
	for i, name := range columns {
		name = cli.Clean(name)
		g.columns = append(g.columns, name)
		g.widths[i], g.right[i] = utf8.RuneCountInString(name), true
	}
	return g
}

// measure widens the columns so that a row fits.
func (g *grid) measure(cells []string, numbers []bool) {
	for i, cell := range cells[:min(len(cells), len(g.widths))] {
		g.widths[i] = max(g.widths[i], utf8.RuneCountInString(cell))
		g.right[i] = g.right[i] && numbers[i]
	}
}

// fit narrows the widest columns until the grid fits into width. It returns false if the
// columns would become too narrow to be useful.
func (g *grid) fit(width int) (fitted grid, ok bool) {
	fitted = *g
	if width <= 0 || sumWidths(g.widths, 1<<30) <= width {
		return fitted, true
	}
	limit := width
	for limit >= cli.MinWidth && sumWidths(g.widths, limit) > width {
		limit--
	}
	if limit < cli.MinWidth {
		return fitted, false
	}
	fitted.widths = make([]int, len(g.widths))
	for i, n := range g.widths {
		fitted.widths[i] = min(n, limit)
	}
	return fitted, true
}

// sumWidths returns a line's width if each column is cut to at most limit characters.
func sumWidths(widths []int, limit int) int {
	sum := max(0, len(widths)-1) * len(cli.ColumnGap)
	for _, n := range widths {
		sum += min(n, limit)
	}
	return sum
}

// line formats a row as a line of the table.
func (g *grid) line(cells []string) string {
	out := make([]string, min(len(cells), len(g.widths)))
	for i := range out {
		out[i] = cli.Pad(cli.Cut(cells[i], g.widths[i]), g.widths[i], g.right[i])
	}
	return strings.TrimRight(strings.Join(out, cli.ColumnGap), " ") + "\n"
}

// list formats a row as a list of its cells, one per line.
func (g *grid) list(n int, cells []string, width int) string {
	label := 0
	for _, name := range g.columns {
		label = max(label, utf8.RuneCountInString(name))
	}
	label = min(label, max(cli.MinWidth, width/2))
	var b strings.Builder
	fmt.Fprintf(&b, "-- row %d\n", n)
	for i, cell := range cells[:min(len(cells), len(g.columns))] {
		b.WriteString(cli.Pad(cli.Cut(g.columns[i], label), label, false) + cli.ColumnGap + cli.Cut(cell, max(cli.MinWidth, width-label-len(cli.ColumnGap))) + "\n")
	}
	return b.String()
}
