package cli

import (
	"io"
	"strings"
	"unicode/utf8"
)

// table is a text table: a header in capitals, columns aligned, two spaces
// between them, no lines.
type table struct {
	head   []string
	rows   [][]string
	right  map[int]bool // columns aligned to the right: numbers
	shrink []int        // columns cut first, in this order, when the screen is narrow
	indent string
}

func newTable(head ...string) *table { return &table{head: head, right: map[int]bool{}} }

// numbers aligns columns to the right.
func (t *table) numbers(columns ...int) *table {
	for _, c := range columns {
		t.right[c] = true
	}
	return t
}

// narrow names the columns that are cut when the screen is too narrow, the
// most dispensable first.
func (t *table) narrow(columns ...int) *table {
	t.shrink = columns
	return t
}

func (t *table) row(cells ...string) {
	for i := range cells {
		cells[i] = clean(cells[i])
	}
	t.rows = append(t.rows, cells)
}

const (
	columnGap  = "  "
	leastWidth = 8 // below which a cut column says nothing
)

// write prints the table. width is the screen's; 0 means that nothing is cut.
func (t *table) write(w io.Writer, width int) error {
	widths := make([]int, len(t.head))
	all := append([][]string{t.head}, t.rows...)
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	if width > 0 {
		t.fit(widths, width)
	}
	var b strings.Builder
	for _, row := range all {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = pad(cut(cell, widths[i]), widths[i], t.right[i])
		}
		b.WriteString(strings.TrimRight(t.indent+strings.Join(cells, columnGap), " "))
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// fit takes what is too much from the columns that may be cut.
func (t *table) fit(widths []int, width int) {
	over := len(t.indent) + (len(widths)-1)*len(columnGap) - width
	for _, n := range widths {
		over += n
	}
	for _, column := range t.shrink {
		if over <= 0 {
			return
		}
		give := min(over, max(0, widths[column]-max(leastWidth, utf8.RuneCountInString(t.head[column]))))
		widths[column] -= give
		over -= give
	}
}

// cut shortens s to n characters, the last of them an ellipsis.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	runes := []rune(s)
	return string(runes[:max(0, n-1)]) + "…"
}

func pad(s string, n int, right bool) string {
	blank := strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s)))
	if right {
		return blank + s
	}
	return s + blank
}

// facts prints "name  value" lines, values aligned, empty values left out.
type facts struct{ rows [][2]string }

func (f *facts) add(name, value string) {
	if value != "" {
		f.rows = append(f.rows, [2]string{name, clean(value)})
	}
}

func (f *facts) write(w io.Writer) error {
	width := 0
	for _, r := range f.rows {
		width = max(width, utf8.RuneCountInString(r[0]))
	}
	var b strings.Builder
	for _, r := range f.rows {
		b.WriteString(pad(r[0], width, false) + columnGap + r[1] + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
