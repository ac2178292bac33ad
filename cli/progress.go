package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// progress draws a bar for each of several things under way, one below the
// other, over what it drew before. On anything but a terminal only what is
// finished is told, a line each.
type progress struct {
	to    Stream
	bars  []bar // in the order of their coming
	drawn int   // lines on the screen
}

// bar is how far one thing has come.
type bar struct {
	name   string
	status string
	done   int64
	total  int64 // 0: not known
	over   bool
}

const (
	barCells = 24
	fullCell = "█"
	restCell = "░"
)

// set changes a bar, or adds it, and draws.
func (p *progress) set(b bar) {
	i := slices.IndexFunc(p.bars, func(x bar) bool { return x.name == b.name })
	switch {
	case i < 0:
		p.bars = append(p.bars, b)
	case p.bars[i] == b:
		return
	default:
		p.bars[i] = b
	}
	if !p.to.TTY {
		if b.over {
			fmt.Fprintf(p.to, "%s  %s\n", clean(b.name), clean(b.status))
		}
		return
	}
	p.draw()
}

func (p *progress) draw() {
	width := 0
	for _, b := range p.bars {
		width = max(width, len(clean(b.name)))
	}
	var out strings.Builder
	if p.drawn > 0 {
		fmt.Fprintf(&out, "\x1b[%dA", p.drawn)
	}
	for _, b := range p.bars {
		line := cut(b.line(width), max(p.to.Width-1, leastWidth))
		out.WriteString("\r\x1b[K" + line + "\n")
	}
	p.drawn = len(p.bars)
	_, _ = io.WriteString(p.to, out.String()) // a screen that is gone needs no bar
}

// line shows a bar: name, cells, part of the whole, status.
func (b *bar) line(width int) string {
	name := pad(clean(b.name), width, false)
	if b.over || b.total <= 0 {
		return name + columnGap + clean(b.status)
	}
	part := min(max(float64(b.done)/float64(b.total), 0), 1)
	full := int(part * barCells)
	return fmt.Sprintf("%s  %s%s %3.0f%%  %s of %s  %s", name, strings.Repeat(fullCell, full), strings.Repeat(restCell, barCells-full),
		part*100, bytesText(b.done), bytesText(b.total), clean(b.status))
}

// bytesText shows an amount of bytes in a unit that leaves at most four
// digits.
func bytesText(n int64) string {
	switch {
	case n < 0:
		return "-"
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
}

// pullBar shows an image's pull.
func pullBar(name string, i *bourse.Image) bar {
	if i.Pull == nil {
		return bar{name: name, status: "here, " + bytesText(i.Bytes), over: true}
	}
	return bar{name: name, status: i.Pull.Status, done: i.Pull.Bytes, total: i.Pull.Total}
}
