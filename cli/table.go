package cli

import (
	"io"
	"strings"
	"unicode/utf8"
)

// Table is a text table: a header in capitals, columns aligned, two spaces
// between them, no lines. Where the screen is too narrow for all of it, columns
// are cut, and others left out; where there is no screen it is printed whole.
type Table struct {
	head   []string
	rows   [][]string
	right  map[int]bool              // columns aligned to the right: numbers
	shrink []int                     // columns cut first, in this order, when the screen is narrow
	drop   []int                     // columns left out, in this order, when it still is
	hidden []int                     // columns that are never shown
	ends   map[int]bool              // columns whose ends are kept when they are cut
	wraps  bool                      // the last column is broken between words, not cut
	paint  map[int]func(string) Tone // colours of columns' cells
	Indent string
}

// NewTable returns a table with this header.
func NewTable(head ...string) *Table {
	return &Table{head: head, right: map[int]bool{}, paint: map[int]func(string) Tone{}}
}

// Numbers aligns columns to the right.
func (t *Table) Numbers(columns ...int) *Table {
	for _, c := range columns {
		t.right[c] = true
	}
	return t
}

// Narrow names the columns that are cut when the screen is too narrow, the
// most dispensable first. No other is ever cut.
func (t *Table) Narrow(columns ...int) *Table {
	t.shrink = columns
	return t
}

// Drop names the columns that are left out when the screen is too narrow, the
// most dispensable first.
func (t *Table) Drop(columns ...int) *Table {
	t.drop = columns
	return t
}

// KeepEnd names columns that are cut at their beginnings: the end of an image's name says
// which it is.
func (t *Table) KeepEnd(columns ...int) *Table {
	t.ends = map[int]bool{}
	for _, c := range columns {
		t.ends[c] = true
	}
	return t
}

// Wrap breaks the cells of the last column between words, where others are cut: for what
// a person has to read to its end. It is to be one of those of Narrow.
func (t *Table) Wrap() *Table {
	t.wraps = true
	return t
}

// Hide leaves columns out on any screen.
func (t *Table) Hide(columns ...int) *Table {
	t.hidden = append(t.hidden, columns...)
	return t
}

// Paint colours the cells of a column, where colours are wanted.
func (t *Table) Paint(column int, tone func(cell string) Tone) *Table {
	t.paint[column] = tone
	return t
}

// Row adds a row. What it holds may come from elsewhere: it is cleaned.
func (t *Table) Row(cells ...string) {
	for i := range cells {
		cells[i] = Clean(cells[i])
	}
	t.rows = append(t.rows, cells)
}

// Empty reports whether the table has no rows.
func (t *Table) Empty() bool { return len(t.rows) == 0 }

// Of tables.
const (
	ColumnGap  = "  " // between columns
	MinWidth   = 8    // below which a cut column is of no use
	easyWidth  = 26   // to which a column is cut rather than that another one is left out
	leftOut    = -1   // width of a column that is
	tableWhole = 0    // width of a screen that is none
)

// Write prints the table as wide as the terminal is; whole, where there is none.
func (t *Table) Write(out Stream) error {
	width, _ := out.Size()
	_, err := io.WriteString(out, t.text(width, out.Color))
	return err
}

// String returns the whole table.
func (t *Table) String() string { return t.text(tableWhole, false) }

func (t *Table) text(width int, colour bool) string {
	widths := make([]int, len(t.head))
	all := append([][]string{t.head}, t.rows...)
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, column := range t.hidden {
		widths[column] = leftOut
	}
	if width > tableWhole {
		t.fit(widths, width)
	}
	var b strings.Builder
	for n, row := range all {
		for _, part := range t.parts(row, widths) {
			b.WriteString(t.line(part, widths, colour && n > 0))
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// parts returns the rows that a row is printed as: more than one where its last cell is
// broken.
func (t *Table) parts(row []string, widths []int) [][]string {
	last := len(row) - 1
	if !t.wraps || last != len(widths)-1 || widths[last] == leftOut {
		return [][]string{row}
	}
	var out [][]string
	for i, text := range Wrap(row[last], widths[last], 0) {
		part := make([]string, len(row))
		if i == 0 {
			copy(part, row)
		}
		part[last] = text
		out = append(out, part)
	}
	return out
}

func (t *Table) line(row []string, widths []int, colour bool) string {
	var cells []string
	last := len(row) - 1
	for last > 0 && (widths[last] == leftOut || row[last] == "") {
		last--
	}
	for i, cell := range row[:last+1] {
		if widths[i] == leftOut {
			continue
		}
		text := Cut(cell, widths[i])
		if n := utf8.RuneCountInString(cell); t.ends[i] && n > widths[i] {
			text = "…" + string([]rune(cell)[n-max(0, widths[i]-1):])
		}
		if i < last || t.right[i] {
			text = Pad(text, widths[i], t.right[i])
		}
		if tone := t.paint[i]; colour && tone != nil && cell != "" {
			text = tone(cell).paint(text)
		}
		cells = append(cells, text)
	}
	return t.Indent + strings.Join(cells, ColumnGap)
}

// PrintList prints a list: as JSON, or as a table with a row for each; when it is
// empty, a note instead.
func PrintList[T any](s *Shell, list []T, none string, t *Table, row func(*T) []string) error {
	switch {
	case s.JSON && list == nil:
		return s.PrintJSON([]T{})
	case s.JSON:
		return s.PrintJSON(list)
	case len(list) == 0:
		s.Note(none)
		return nil
	}
	for i := range list {
		t.Row(row(&list[i])...)
	}
	return t.Write(s.Out)
}

// fit makes columns narrower until the table fits: first those that may be cut,
// as far as they stay easy to read; then columns are left out; then the first are
// cut as far as they are of any use.
func (t *Table) fit(widths []int, width int) {
	over := len(t.Indent) - len(ColumnGap) - width
	for _, n := range widths {
		if n != leftOut {
			over += n + len(ColumnGap)
		}
	}
	over -= t.cut(widths, over, easyWidth)
	for _, column := range t.drop {
		if over <= 0 {
			return
		}
		if widths[column] == leftOut {
			continue
		}
		over -= widths[column] + len(ColumnGap)
		widths[column] = leftOut
	}
	t.cut(widths, over, MinWidth)
}

// cut takes what is too much from the columns that may be cut, down to a width,
// and returns how much that was.
func (t *Table) cut(widths []int, over, least int) int {
	taken := 0
	for _, column := range t.shrink {
		least := max(least, utf8.RuneCountInString(t.head[column]))
		less := max(0, min(over-taken, widths[column]-least))
		widths[column] -= less
		taken += less
	}
	return taken
}

// Cut shortens s to n characters, the last of them an ellipsis.
func Cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	runes := []rune(s)
	return string(runes[:max(0, n-1)]) + "…"
}

// Pad fills s up to n characters with blanks, on the left to align it to the right.
func Pad(s string, n int, right bool) string {
	blank := strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s)))
	if right {
		return blank + s
	}
	return s + blank
}

// Facts prints "name  value" lines, values aligned, empty values left out.
type Facts struct{ rows [][2]string }

// Add adds a line, unless its value is empty.
func (f *Facts) Add(name, value string) {
	if value != "" {
		f.rows = append(f.rows, [2]string{name, Clean(value)})
	}
}

// Write prints the lines.
func (f *Facts) Write(w io.Writer) error {
	width := 0
	for _, r := range f.rows {
		width = max(width, utf8.RuneCountInString(r[0]))
	}
	var b strings.Builder
	for _, r := range f.rows {
		b.WriteString(Pad(r[0], width, false) + ColumnGap + r[1] + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
