package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// Bars draws a bar for each of several things in progress, one below the
// other, over what it drew before. On anything but a terminal only what is
// finished is printed, a line each.
type Bars struct {
	To    Stream
	bars  []Bar // in the order of their coming
	drawn int   // lines on the screen
}

// Bar is how far one thing has come.
type Bar struct {
	Name   string
	Status string
	Done   int64
	Total  int64 // 0: not known
	Over   bool
}

const (
	barCells = 24
	fullCell = "█"
	restCell = "░"
)

// Set changes a bar, or adds it, and draws.
func (p *Bars) Set(b Bar) {
	i := slices.IndexFunc(p.bars, func(x Bar) bool { return x.Name == b.Name })
	switch {
	case i < 0:
		p.bars = append(p.bars, b)
	case p.bars[i] == b:
		return
	default:
		p.bars[i] = b
	}
	if !p.To.TTY || p.To.Dumb {
		if b.Over {
			fmt.Fprintf(p.To, "%s  %s\n", Clean(b.Name), Clean(b.Status))
		}
		return
	}
	p.draw()
}

func (p *Bars) draw() {
	width := 0
	for _, b := range p.bars {
		width = max(width, len(Clean(b.Name)))
	}
	var out strings.Builder
	if p.drawn > 0 {
		fmt.Fprintf(&out, "\x1b[%dA", p.drawn)
	}
	for _, b := range p.bars {
		line := Cut(b.line(width), max(p.To.Width-1, MinWidth))
		out.WriteString("\r\x1b[K" + line + "\n")
	}
	p.drawn = len(p.bars)
	_, _ = io.WriteString(p.To, out.String()) // a screen that is gone needs no bar
}

// line shows a bar: name, cells, part of the whole, status.
func (b *Bar) line(width int) string {
	name := Pad(Clean(b.Name), width, false)
	if b.Over || b.Total <= 0 {
		return name + ColumnGap + Clean(b.Status)
	}
	part := min(max(float64(b.Done)/float64(b.Total), 0), 1)
	full := int(part * barCells)
	return fmt.Sprintf("%s  %s%s %3.0f%%  %s of %s  %s", name, strings.Repeat(fullCell, full), strings.Repeat(restCell, barCells-full),
		part*100, Bytes(b.Done), Bytes(b.Total), Clean(b.Status))
}

// PullBar shows an image's pull.
func PullBar(name string, i *bourse.Image) Bar {
	if i.Pull == nil {
		return Bar{Name: name, Status: "here, " + Bytes(i.Bytes), Over: true}
	}
	return Bar{Name: name, Status: i.Pull.Status, Done: i.Pull.Bytes, Total: i.Pull.Total}
}
