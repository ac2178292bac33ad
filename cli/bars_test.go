package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
)

func TestBarsAreRedrawnInPlace(t *testing.T) {
	var screen bytes.Buffer
	p := Bars{Out: Stream{ReadWriter: &screen, TTY: true, Width: 80}}
	p.Set(PullBar("gru-1", &bourse.Image{Pull: &bourse.PullProgress{Status: "pulling", Bytes: 5 << 20, Total: 10 << 20}}))
	p.Set(PullBar("a\x1b[31m", &bourse.Image{Pull: &bourse.PullProgress{Status: "resolving"}}))
	p.Set(PullBar("gru-1", &bourse.Image{Bytes: 10 << 20}))
	got := screen.String()
	for _, want := range []string{"████████████░░░░░░░░░░░░  50%  5.0 MiB of 10.0 MiB  pulling", `a\x1b[31m`, "\x1b[1A", "\x1b[2A", "present, 10.0 MiB"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q does not contain %q", got, want)
		}
	}
}

func TestBarsWithoutTerminalPrintOnlyTheEnd(t *testing.T) {
	var out bytes.Buffer
	p := Bars{Out: Stream{ReadWriter: &out}}
	for n := range int64(5) {
		p.Set(Bar{Name: "w", Status: "pulling", Done: n, Total: 5})
	}
	p.Set(Bar{Name: "w", Status: "here", Over: true})
	if got := out.String(); got != "w  here\n" {
		t.Errorf("%q", got)
	}
}

func TestBarsWithInvalidNumbers(t *testing.T) {
	for _, b := range []Bar{{Total: 1, Done: 5}, {Total: 3, Done: -7}, {Total: -1, Done: 1}, {Total: 1 << 62, Done: 1 << 61}} {
		if n := strings.Count(b.line(0), fullCell) + strings.Count(b.line(0), emptyCell); b.Total > 0 && n != barCells {
			t.Errorf("%+v has %d cells", b, n)
		}
	}
}
