package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
)

// plot is a line chart.
type plot struct {
	title, x, y string
	lines       []series
}

type series struct {
	name   string
	points []point
}

type point struct{ x, y float64 }

// Layout of a plot, in pixels.
const (
	width, height       = 720, 420
	left, right         = 60, 500
	top, bottom         = 40, 370
	ticks               = 6
	lineHeight, swatch  = 20, 24
	labelSize, textSize = 12, 14
)

// colors can be distinguished by people with color vision deficiencies (Okabe and Ito, 2008).
var colors = []string{"#999999", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#000000"}

// svg draws the plot.
func (p *plot) svg() []byte {
	xs, ys := p.ranges()
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="%d">`+"\n", width, height, labelSize)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	text := func(x, y float64, anchor, s string, size int) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d">%s</text>`+"\n", x, y, anchor, size, html.EscapeString(s))
	}
	text(left, top-lineHeight, "start", p.title, textSize)
	text((left+right)/2, height-labelSize, "middle", p.x, labelSize)
	text(labelSize/2, top-labelSize/2, "start", p.y, labelSize)
	for _, v := range ys.ticks() {
		y := ys.place(v, bottom, top)
		fmt.Fprintf(&b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/>`+"\n", left, y, right, y)
		text(left-labelSize/2, y+labelSize/3, "end", fmt.Sprintf("%g", v), labelSize)
	}
	for _, v := range xs.ticks() {
		text(xs.place(v, left, right), bottom+lineHeight, "middle", fmt.Sprintf("%g", v), labelSize)
	}
	for i, l := range p.lines {
		color := colors[i%len(colors)]
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="2" points="`, color)
		for _, at := range l.points {
			fmt.Fprintf(&b, "%.1f,%.1f ", xs.place(at.x, left, right), ys.place(at.y, bottom, top))
		}
		b.WriteString(`"/>` + "\n")
		y := float64(top + lineHeight*(i+1))
		fmt.Fprintf(&b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="%s" stroke-width="3"/>`+"\n", right+swatch/2, y, right+swatch, y, color)
		text(right+swatch+labelSize/2, y+labelSize/3, "start", l.name, labelSize-2)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// scaleRange is the range of an axis.
type scaleRange struct{ min, max, step float64 }

func (p *plot) ranges() (x, y scaleRange) {
	lo, hi := point{math.Inf(1), math.Inf(1)}, point{math.Inf(-1), math.Inf(-1)}
	for _, l := range p.lines {
		for _, at := range l.points {
			lo, hi = point{min(lo.x, at.x), min(lo.y, at.y)}, point{max(hi.x, at.x), max(hi.y, at.y)}
		}
	}
	return axis(lo.x, hi.x), axis(lo.y, hi.y)
}

// axis returns a range that begins and ends at round numbers.
func axis(lo, hi float64) scaleRange {
	step := math.Pow(10, math.Floor(math.Log10((hi-lo)/ticks)))
	for _, factor := range []float64{2, 2.5, 2} { // 2, 5 and 10 times the power of ten
		if (hi-lo)/step > ticks {
			step *= factor
		}
	}
	return scaleRange{math.Floor(lo/step) * step, math.Ceil(hi/step) * step, step}
}

func (r scaleRange) ticks() []float64 {
	var out []float64
	for i := 0.0; r.min+i*r.step <= r.max+r.step/2; i++ {
		out = append(out, r.min+i*r.step)
	}
	return out
}

func (r scaleRange) place(v, from, to float64) float64 {
	return from + (v-r.min)/(r.max-r.min)*(to-from)
}
