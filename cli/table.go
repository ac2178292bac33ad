package cli

import (
	"io"
	"strings"
	"unicode/utf8"
)

// Table is a text table with an uppercase header and aligned columns. On a narrow terminal, columns
// are shortened or omitted. Without a terminal, the table is printed in full.
type Table struct {
	head   []string
	rows   [][]string
	right  map[int]bool              // right-aligned columns, which contain numbers
	shrink []int                     // columns to shorten first if the terminal is narrow, in this order
	drop   []int                     // columns to omit if that is not enough, in this order
	hidden []int                     // columns that are never shown
	ends   map[int]bool              // columns that keep their end when they are shortened
	wraps  bool                      // the last column is wrapped instead of shortened
	paint  map[int]func(string) Tone // functions that choose a cell's color, by column
	Indent string
}

// NewTable returns a table with the given header.
func NewTable(head ...string) *Table {
	return &Table{head: head, right: map[int]bool{}, paint: map[int]func(string) Tone{}}
}

// Numbers right-aligns the given columns.
func (t *Table) Numbers(columns ...int) *Table {
	for _, c := range columns {
		t.right[c] = true
	}
	return t
}

// Narrow sets the columns that may be shortened on a narrow terminal, the least important
// first. Other columns are never shortened.
func (t *Table) Narrow(columns ...int) *Table {
	t.shrink = columns
	return t
}

// Drop sets the columns that may be omitted on a narrow terminal, the least important
// first.
func (t *Table) Drop(columns ...int) *Table {
	t.drop = columns
	return t
}

// KeepEnd makes the given columns keep their end instead of their beginning when they are
// shortened. For example, an image's name is best recognized by its end.
func (t *Table) KeepEnd(columns ...int) *Table {
	t.ends = map[int]bool{}
	for _, c := range columns {
		t.ends[c] = true
	}
	return t
}

// Wrap wraps the last column at word boundaries instead of truncating it, so that its text can be
// read in full. The column must also be passed to Narrow.
func (t *Table) Wrap() *Table {
	t.wraps = true
	return t
}

// Hide omits the given columns, even if there is room for them.
func (t *Table) Hide(columns ...int) *Table {
	t.hidden = append(t.hidden, columns...)
	return t
}

// Paint sets the function that chooses the color of a column's cells. It has no effect if colors
// are disabled.
func (t *Table) Paint(column int, tone func(cell string) Tone) *Table {
	t.paint[column] = tone
	return t
}

// Row adds a row. Control characters in cells are escaped.
func (t *Table) Row(cells ...string) {
	for i := range cells {
		cells[i] = Clean(cells[i])
	}
	t.rows = append(t.rows, cells)
}

// Empty reports whether the table has no rows.
func (t *Table) Empty() bool { return len(t.rows) == 0 }

// Dimensions of tables. Widths are in characters.
const (
	ColumnGap      = "  " // text between two columns
	MinWidth       = 8    // minimum width of a shortened column
	readableWidth  = 26   // columns are shortened to this width before other columns are omitted
	omittedColumn  = -1   // width of an omitted column
	unlimitedWidth = 0    // width if the output is not a terminal
)

// Write prints the table so that it fits the terminal. Without a terminal, it prints the
// table in full.
func (t *Table) Write(out Stream) error {
	width, _ := out.Size()
	_, err := io.WriteString(out, t.text(width, out.Color))
	return err
}

// String returns the table in full.
func (t *Table) String() string { return t.text(unlimitedWidth, false) }

func (t *Table) text(width int, color bool) string {
	widths := make([]int, len(t.head))
	all := append([][]string{t.head}, t.rows...)
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, column := range t.hidden {
		widths[column] = omittedColumn
	}
	if width > unlimitedWidth {
		t.fit(widths, width)
	}
	var b strings.Builder
	for n, row := range all {
		for _, part := range t.parts(row, widths) {
			b.WriteString(t.line(part, widths, color && n > 0))
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// parts returns the lines to print for a row. There are several if the last cell is wrapped.
func (t *Table) parts(row []string, widths []int) [][]string {
	last := len(row) - 1
	if !t.wraps || last != len(widths)-1 || widths[last] == omittedColumn {
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

func (t *Table) line(row []string, widths []int, color bool) string {
	var cells []string
	last := len(row) - 1
	for last > 0 && (widths[last] == omittedColumn || row[last] == "") {
		last--
	}
	for i, cell := range row[:last+1] {
		if widths[i] == omittedColumn {
			continue
		}
		text := Cut(cell, widths[i])
		if n := utf8.RuneCountInString(cell); t.ends[i] && n > widths[i] {
			text = "…" + string([]rune(cell)[n-max(0, widths[i]-1):])
		}
		if i < last || t.right[i] {
			text = Pad(text, widths[i], t.right[i])
		}
		if tone := t.paint[i]; color && tone != nil && cell != "" {
			text = tone(cell).paint(text)
		}
		cells = append(cells, text)
	}
	return t.Indent + strings.Join(cells, ColumnGap)
}

// PrintList prints list as a table with one row per element, or as JSON if --json is set. If list
// is empty, it prints the text in none instead of a table.
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

// fit narrows columns until the table fits. It first shortens columns to readableWidth,
// then omits columns, then shortens columns to MinWidth.
func (t *Table) fit(widths []int, width int) {
	over := len(t.Indent) - len(ColumnGap) - width
	for _, n := range widths {
		if n != omittedColumn {
			over += n + len(ColumnGap)
		}
	}
	over -= t.cut(widths, over, readableWidth)
	for _, column := range t.drop {
		if over <= 0 {
			return
		}
		if widths[column] == omittedColumn {
			continue
		}
		over -= widths[column] + len(ColumnGap)
		widths[column] = omittedColumn
	}
	t.cut(widths, over, MinWidth)
}

// cut narrows columns by up to excess characters in total, but keeps each column at least
// floor characters wide. It returns the number of removed characters.
func (t *Table) cut(widths []int, excess, floor int) int {
	taken := 0
	for _, column := range t.shrink {
		floor := max(floor, utf8.RuneCountInString(t.head[column]))
		less := max(0, min(excess-taken, widths[column]-floor))
		widths[column] -= less
		taken += less
	}
	return taken
}

// Cut shortens s to n characters, the last of which is an ellipsis.
func Cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	runes := []rune(s)
	return string(runes[:max(0, n-1)]) + "…"
}

// Pad adds blanks to s until it has n characters. If right is set, it adds them on the
// left, so that s is right-aligned.
func Pad(s string, n int, right bool) string {
	blank := strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s)))
	if right {
		return blank + s
	}
	return s + blank
}

// Facts prints names and values in two aligned columns. It omits names whose value is
// empty.
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
