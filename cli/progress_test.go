package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
)

func TestProgressIsDrawnOverItself(t *testing.T) {
	var screen bytes.Buffer
	p := progress{to: Stream{ReadWriter: &screen, TTY: true, Width: 80}}
	p.set(pullBar("gru-1", &bourse.Image{Pull: &bourse.PullProgress{Status: "pulling", Bytes: 5 << 20, Total: 10 << 20}}))
	p.set(pullBar("a\x1b[31m", &bourse.Image{Pull: &bourse.PullProgress{Status: "resolving"}}))
	p.set(pullBar("gru-1", &bourse.Image{Bytes: 10 << 20}))
	got := screen.String()
	for _, want := range []string{"████████████░░░░░░░░░░░░  50%  5.0 MiB of 10.0 MiB  pulling", `a\x1b[31m`, "\x1b[1A", "\x1b[2A", "here, 10.0 MiB"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}

func TestProgressOfAPipeTellsEndsOnly(t *testing.T) {
	var out bytes.Buffer
	p := progress{to: Stream{ReadWriter: &out}}
	for n := range int64(5) {
		p.set(bar{name: "w", status: "pulling", done: n, total: 5})
	}
	p.set(bar{name: "w", status: "here", over: true})
	if got := out.String(); got != "w  here\n" {
		t.Errorf("%q", got)
	}
}

func TestBarsBearAnyNumbers(t *testing.T) {
	for _, b := range []bar{{total: 1, done: 5}, {total: 3, done: -7}, {total: -1, done: 1}, {total: 1 << 62, done: 1 << 61}} {
		if n := strings.Count(b.line(0), fullCell) + strings.Count(b.line(0), restCell); b.total > 0 && n != barCells {
			t.Errorf("%+v has %d cells", b, n)
		}
	}
}
