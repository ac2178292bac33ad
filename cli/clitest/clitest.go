// Package clitest runs commands in tests: against a handler that is the API,
// at a fixed time, with golden files for what they print.
package clitest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Update is the flag -update of tests: write the golden files again.
var Update = flag.Bool("update", false, "write the golden files again")

// InUTC runs tests that print times, which are then in UTC. TestMain calls it,
// before anything that may read the clock was started.
func InUTC(m *testing.M) {
	time.Local = time.UTC
	os.Exit(m.Run())
}

// Now is the present moment of every test that shows an age.
var Now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// Line is a command line: the commands that [cli.Main] is called with.
type Line func(*cli.Shell) []cli.Group

// Of returns a command line of some commands.
func Of(commands ...func(*cli.Shell) *cobra.Command) Line {
	return func(s *cli.Shell) []cli.Group {
		g := cli.Group{Title: "Commands:"}
		for _, c := range commands {
			g.Commands = append(g.Commands, c(s))
		}
		return []cli.Group{g}
	}
}

// Result is what a person has before them after a command.
type Result struct {
	Code     int
	Out, Err string
}

// Main runs the command line in an environment.
func (l Line) Main(ctx context.Context, env cli.Env, args ...string) int {
	return cli.Main(ctx, env, args, l)
}

// Run runs the command line, with no terminal and no input.
func (l Line) Run(t testing.TB, args ...string) Result {
	t.Helper()
	return l.run(t, "", false, args)
}

// RunWith runs the command line as Run does, with an environment.
func (l Line) RunWith(t testing.TB, vars map[string]string, args ...string) Result {
	t.Helper()
	return l.runIn(t.Context(), "", false, vars, args)
}

func (l Line) run(t testing.TB, in string, terminal bool, args []string) Result {
	return l.runIn(t.Context(), in, terminal, nil, args)
}

// Env is the surroundings of a command: environment variables, what is typed or piped
// in, and whether a person is at all three streams. It returns what is printed, too.
func Env(vars map[string]string, in string, terminal bool) (env cli.Env, out, errs *bytes.Buffer) {
	env = cli.Env{Getenv: func(name string) string { return vars[name] }, Now: func() time.Time { return Now }}
	env.In, _ = Buffer(in)
	env.Out, out = Buffer("")
	env.Err, errs = Buffer("")
	env.In.TTY, env.Out.TTY, env.Err.TTY = terminal, terminal, terminal
	return env, out, errs
}

func (l Line) runIn(ctx context.Context, in string, terminal bool, vars map[string]string, args []string) Result {
	env, out, errs := Env(vars, in, terminal)
	code := l.Main(ctx, env, args...)
	return Result{code, out.String(), errs.String()}
}

// Interrupted runs the command line as Against does, and has it interrupted, as
// Ctrl-C does, by the first request whose path begins with path; that one is
// not answered.
func (l Line) Interrupted(t testing.TB, h http.Handler, path string, args ...string) Result {
	t.Helper()
	ctx, interrupt := context.WithCancelCause(t.Context())
	defer interrupt(nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, path) {
			h.ServeHTTP(w, r)
			return
		}
		interrupt(errors.New("interrupt signal received"))
		_, _ = io.Copy(io.Discard, r.Body) // or the server would not notice that the client is gone
		<-r.Context().Done()
	}))
	defer server.Close()
	return l.runIn(ctx, "", false, nil, append([]string{"--api", server.URL}, args...))
}

// AtTerminal runs the command line with a handler as the API and a person at
// all three streams, who types in.
func (l Line) AtTerminal(t testing.TB, h http.Handler, in string, args ...string) Result {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	return l.run(t, in, true, append([]string{"--api", server.URL}, args...))
}

// Against runs the command line with a handler as the API.
func (l Line) Against(t testing.TB, h http.Handler, args ...string) Result {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	r := l.Run(t, append([]string{"--api", server.URL}, args...)...)
	r.Err = strings.ReplaceAll(r.Err, server.URL, "http://API")
	return r
}

// Screens runs the command line with a handler as the API on terminals of 80 and of
// 200 columns, and compares each with a golden file.
func (l Line) Screens(t *testing.T, name string, h http.Handler, args ...string) {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	for _, width := range Widths {
		env, out, errs := terminal(width)
		code := l.Main(t.Context(), env, append([]string{"--api", server.URL}, args...)...)
		if code != 0 || errs.Len() > 0 {
			t.Errorf("%q: exit status %d, %s", args, code, errs)
		}
		Screen(t, name, width, out.String())
	}
}

// Buffer returns a stream that is no terminal, and what is behind it.
func Buffer(in string) (cli.Stream, *bytes.Buffer) {
	b := bytes.NewBufferString(in)
	return cli.Stream{ReadWriter: b}, b
}

// Replies serves one body to every request.
func Replies(status int, body any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	})
}

// Paths serves a body for each path, and 404 for all others.
func Paths(bodies map[string]any) http.Handler {
	mux := http.NewServeMux()
	for path, body := range bodies {
		mux.Handle("GET "+path, Replies(http.StatusOK, body))
	}
	mux.Handle("/", Failure(bourse.CodeNotFound, "no such endpoint"))
	return mux
}

// Failure refuses every request with an error.
func Failure(code bourse.Code, text string) http.Handler {
	return Replies(code.Status(), machinesapi.ErrorBody{Error: text, Code: code})
}

// Golden compares got with testdata/<name>.golden; -update writes it. Lines fit
// on 80 columns unless the name has "wide" in it.
func Golden(t *testing.T, name, got string) {
	t.Helper()
	width := 80
	if strings.Contains(name, "wide") {
		width = 0
	}
	golden(t, name, got, width)
}

// golden is Golden of a screen so wide, or that cuts nothing.
func golden(t *testing.T, name, got string, width int) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *Update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", path, diff)
	}
	for line := range strings.Lines(got) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); width > 0 && n > width {
			t.Errorf("%s: a line of %d characters does not fit on %d columns: %s", path, n, width, line)
		}
	}
}
