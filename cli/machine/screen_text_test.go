package machine

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestLogsAreEscapedOnATerminal checks that a machine's output cannot move the cursor,
// change the window's title, clear the terminal or write to the clipboard. Colors in the
// output must be preserved.
func TestLogsAreEscapedOnATerminal(t *testing.T) {
	for line, want := range map[string]string{
		"plain":                                  "plain",
		"a\tb":                                   "a\tb",
		"\x1b[31mred\x1b[0m":                     "\x1b[31mred\x1b[0m\x1b[0m",
		"\x1b[2Jgone":                            `\x1b[2Jgone`,
		"\x1b]0;title\x07":                       `\x1b]0;title\a`,
		"\x1b]52;c;aGk=\x1b\\":                   `\x1b]52;c;aGk=\x1b\`,
		"a\rb\b":                                 `a\rb\b`,
		"\u009b31m":                              `\u009b31m`,
		"\u202eevil":                             `\u202eevil`,
		"\x1b[" + strings.Repeat("1;", 40) + "m": `\x1b[` + strings.Repeat("1;", 40) + "m",
		"bad \xff":                               `bad \ufffd`,
	} {
		var out, piped bytes.Buffer
		s := &cli.Shell{Env: cli.Env{Out: cli.Stream{ReadWriter: &out, TTY: true}, Err: cli.Stream{ReadWriter: &out, TTY: true}}}
		if err := logPrinter(s, false)(logLine{LogLine: machinesapi.LogLine{Stream: "stdout", Text: line}}); err != nil || out.String() != want+"\n" {
			t.Errorf("%q is printed as %q, %v; want %q", line, out.String(), err, want)
		}
		s.Out, s.Err = cli.Stream{ReadWriter: &piped}, cli.Stream{ReadWriter: &piped}
		if err := logPrinter(s, false)(logLine{LogLine: machinesapi.LogLine{Stream: "stderr", Text: line}}); err != nil || piped.String() != line+"\n" {
			t.Errorf("%q is printed to a pipe as %q, %v; want it unchanged", line, piped.String(), err)
		}
	}
}

func FuzzScreenText(f *testing.F) {
	f.Add("\x1b[31mred\x1b[0m\x1b]0;x\x07\t\xff")
	f.Fuzz(func(t *testing.T, s string) {
		got := screenText(s)
		if !utf8.ValidString(got) {
			t.Errorf("%q becomes %q, which is not UTF-8", s, got)
		}
		for got != "" {
			if n := color(got); n > 0 {
				got = got[n:]
				continue
			}
			_, n := utf8.DecodeRuneInString(got)
			if r := got[:n]; r != "\t" && cli.Clean(r) != r {
				t.Fatalf("in %q, %q is not escaped", s, r)
			}
			got = got[n:]
		}
	})
}
