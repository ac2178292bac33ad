package logs

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 5, time.UTC)

func TestLineFormat(t *testing.T) {
	got := string(appendLine(nil, noon, "stderr", true, []byte("a b")))
	if want := "2026-01-02T12:00:00.000000005Z stderr P a b\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestParseLine(t *testing.T) {
	const stamp = "2026-01-02T12:00:00.000000005Z"
	for name, c := range map[string]struct {
		line string
		want driver.LogLine
		ok   bool
	}{
		"whole":          {stamp + " stdout F hello world", driver.LogLine{At: noon, Stream: "stdout", Text: "hello world"}, true},
		"partial":        {stamp + " stderr P x", driver.LogLine{At: noon, Stream: "stderr", Text: "x", Partial: true}, true},
		"empty":          {stamp + " stdout F ", driver.LogLine{At: noon, Stream: "stdout"}, true},
		"binary":         {stamp + " stdout F \x00\xff", driver.LogLine{At: noon, Stream: "stdout", Text: "\x00\xff"}, true},
		"torn text":      {stamp + " stdout F hel", driver.LogLine{At: noon, Stream: "stdout", Text: "hel"}, true},
		"torn tag":       {stamp + " stdout F", driver.LogLine{}, false},
		"torn stream":    {stamp + " std", driver.LogLine{}, false},
		"torn time":      {stamp[:12], driver.LogLine{}, false},
		"nothing":        {"", driver.LogLine{}, false},
		"another stream": {stamp + " stdin F x", driver.LogLine{}, false},
		"another tag":    {stamp + " stdout X x", driver.LogLine{}, false},
	} {
		got, ok := parseLine([]byte(c.line))
		if ok != c.ok || got != c.want {
			t.Errorf("%s: got %+v, %v, want %+v, %v", name, got, ok, c.want, c.ok)
		}
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add([]byte("2026-01-02T12:00:00.000000005Z stdout F hello"))
	f.Add([]byte("2026-01-02T12:00:00Z stderr P \x00"))
	f.Add([]byte("  "))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, ok := parseLine(b)
		if !ok {
			return
		}
		if l.At.UTC().Year() < 0 || l.At.UTC().Year() > 9999 {
			return // RFC 3339 does not allow other years, but converting a time to UTC can result in one
		}
		again, ok := parseLine(bytes.TrimSuffix(appendLine(nil, l.At, l.Stream, l.Partial, []byte(l.Text)), []byte("\n")))
		if !ok || !again.At.Equal(l.At) || again.Text != l.Text || again.Stream != l.Stream || again.Partial != l.Partial {
			t.Errorf("%+v was decoded as %+v", l, again)
		}
	})
}

// FuzzSplitLines splits data into two parts at any position, and checks that joining the lines
// restores the data.
func FuzzSplitLines(f *testing.F) {
	f.Add([]byte("one\ntwo\n\nthree"), 5)
	f.Add([]byte(strings.Repeat("x", maxLine)+"\n"+strings.Repeat("y", maxLine+1)+"\n"), 100)
	f.Add([]byte(strings.Repeat("z", 3*maxLine)), maxLine)
	f.Fuzz(func(t *testing.T, data []byte, at int) {
		at = max(0, min(at, len(data)))
		var got []byte
		line := func(text []byte, partial bool) {
			if len(text) > maxLine || bytes.IndexByte(text, '\n') >= 0 {
				t.Fatalf("a piece of %d bytes with a newline at %d", len(text), bytes.IndexByte(text, '\n'))
			}
			got = append(got, text...)
			if !partial {
				got = append(got, '\n')
			}
		}
		rest := splitLines(data[:at], line)
		rest = splitLines(append(append([]byte(nil), rest...), data[at:]...), line)
		if len(rest) > maxLine {
			t.Fatalf("%d bytes remain", len(rest))
		}
		if got = append(got, rest...); !bytes.Equal(got, data) {
			t.Errorf("joined: got %q, want %q", got, data)
		}
	})
}
