package clitest

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/cli"
)

// Widths contains the terminal widths for which golden files exist, in columns.
var Widths = []int{80, 200}

// Screen compares the contents of a terminal with testdata/<name>.<width>.golden, or writes
// that file if -update is set. No line may be longer than the width.
func Screen(t *testing.T, name string, width int, got string) {
	t.Helper()
	golden(t, fmt.Sprintf("%s.%d", name, width), got, width)
}

// On calls show with a Shell whose terminal has the given width and does not support
// moving the cursor. It returns the Shell's standard output followed by its standard
// error.
func On(t testing.TB, width int, show func(*cli.Shell) error) string {
	t.Helper()
	env, out, errs := terminal(width)
	if err := show(&cli.Shell{Env: env}); err != nil {
		t.Fatal(err)
	}
	return out.String() + errs.String()
}

// Drawn is like On, but the terminal supports moving the cursor. It returns the final
// contents of the terminal, including lines that have scrolled off the screen.
func Drawn(t testing.TB, width int, show func(*cli.Shell) error) string {
	t.Helper()
	got := On(t, width, func(s *cli.Shell) error {
		s.Out.TTY, s.Err.TTY = true, true
		return show(s)
	})
	for {
		at := wiped.FindStringSubmatchIndex(got)
		if at == nil {
			return got
		}
		lines, _ := strconv.Atoi(got[at[2]:at[3]])
		stays := strings.SplitAfter(got[:at[0]], "\n")
		stays = stays[:max(0, len(stays)-1-lines)]
		got = strings.Join(stays, "") + got[at[1]:]
	}
}

// wiped matches the escape sequence that moves the cursor up by a number of lines and
// clears the screen below it.
var wiped = regexp.MustCompile("\x1b\\[([0-9]+)A\r\x1b\\[J")

// Painted is like Screens, but the terminals have colors. The golden files include the
// color sequences.
func (l Line) Painted(t *testing.T, name string, h http.Handler, args ...string) {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	for _, width := range Widths {
		env, out, errs := terminal(width)
		for _, s := range []*cli.Stream{&env.Out, &env.Err} {
			s.TTY, s.Dumb, s.Color = true, true, true // dumb disables spinners
		}
		if code := l.Main(t.Context(), env, append([]string{"--api", server.URL}, args...)...); code != 0 {
			t.Errorf("%q: exit status %d, %s", args, code, errs)
		}
		got := out.String() + errs.String()
		for line := range strings.Lines(got) {
			if n := len([]rune(strings.TrimRight(escapes.ReplaceAllString(line, ""), "\n"))); n > width {
				t.Errorf("%q: a line has %d characters, want at most %d: %q", args, n, width, line)
			}
		}
		golden(t, fmt.Sprintf("%s.%d", name, width), strings.ReplaceAll(got, "\x1b", "␛"), 0)
	}
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

func terminal(width int) (env cli.Env, out, errs *bytes.Buffer) {
	env = cli.Env{Getenv: func(string) string { return "" }, Now: func() time.Time { return Now }}
	env.In, _ = Buffer("")
	env.Out, out = Buffer("")
	env.Err, errs = Buffer("")
	env.Out.Width, env.Err.Width = width, width
	return env, out, errs
}
