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

// Widths are those of the terminals that screens are kept of.
var Widths = []int{80, 200}

// Screen compares what is on a terminal so wide with testdata/<name>.<width>.golden;
// -update writes it. No line may be wider.
func Screen(t *testing.T, name string, width int, got string) {
	t.Helper()
	golden(t, fmt.Sprintf("%s.%d", name, width), got, width)
}

// On returns what a person has before them on a terminal so wide, that cannot be drawn
// over, after show has printed: its output, then its standard error.
func On(t testing.TB, width int, show func(*cli.Shell) error) string {
	t.Helper()
	env, out, errs := terminal(width)
	if err := show(&cli.Shell{Env: env}); err != nil {
		t.Fatal(err)
	}
	return out.String() + errs.String()
}

// Drawn is On of a terminal that is drawn over: what stands there at the end, with
// what has scrolled away.
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

// wiped is what moves the cursor so many lines up and erases what is below.
var wiped = regexp.MustCompile("\x1b\\[([0-9]+)A\r\x1b\\[J")

// Painted is Screens on terminals with colours: where those begin and end is kept too.
func (l Line) Painted(t *testing.T, name string, h http.Handler, args ...string) {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	for _, width := range Widths {
		env, out, errs := terminal(width)
		for _, s := range []*cli.Stream{&env.Out, &env.Err} {
			s.TTY, s.Dumb, s.Color = true, true, true // nothing spins
		}
		if code := l.Main(t.Context(), env, append([]string{"--api", server.URL}, args...)...); code != 0 {
			t.Errorf("%q: exit status %d, %s", args, code, errs)
		}
		got := out.String() + errs.String()
		for line := range strings.Lines(got) {
			if n := len([]rune(strings.TrimRight(escapes.ReplaceAllString(line, ""), "\n"))); n > width {
				t.Errorf("%q: a line of %d characters does not fit on %d columns: %q", args, n, width, line)
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
