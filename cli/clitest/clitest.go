// Package clitest runs commands in tests, with an HTTP handler as the API and a fixed
// time, and compares their output with golden files.
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

// Update is the tests' -update flag, which rewrites the golden files.
var Update = flag.Bool("update", false, "rewrite the golden files")

// InUTC runs tests with UTC as the local time zone. TestMain calls it before starting
// anything that may read the clock.
func InUTC(m *testing.M) {
	time.Local = time.UTC
	os.Exit(m.Run())
}

// Now is the current time in all tests that print ages.
var Now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// Line creates the commands of the program under test. Its methods run one of these
// commands.
type Line func(*cli.Shell) []cli.Group

// Of returns a Line with the given commands.
func Of(commands ...func(*cli.Shell) *cobra.Command) Line {
	return func(s *cli.Shell) []cli.Group {
		g := cli.Group{Title: "Commands:"}
		for _, c := range commands {
			g.Commands = append(g.Commands, c(s))
		}
		return []cli.Group{g}
	}
}

// Result is a command's output and exit status.
type Result struct {
	Code     int
	Out, Err string
}

// Main runs a command with the given arguments and environment, and returns its exit
// status.
func (l Line) Main(ctx context.Context, env cli.Env, args ...string) int {
	return cli.Main(ctx, env, args, l)
}

// Run runs a command without a terminal and without input.
func (l Line) Run(t testing.TB, args ...string) Result {
	t.Helper()
	return l.run(t, "", false, args)
}

// RunWith is like Run, with environment variables.
func (l Line) RunWith(t testing.TB, vars map[string]string, args ...string) Result {
	t.Helper()
	return l.runIn(t.Context(), "", false, vars, args)
}

func (l Line) run(t testing.TB, in string, terminal bool, args []string) Result {
	return l.runIn(t.Context(), in, terminal, nil, args)
}

// Env returns an environment with the given variables and standard input. If terminal
// is set, all three streams are terminals. out and errs receive the output.
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

// Interrupted is like Against, but simulates Ctrl-C when the command sends its first
// request to a path that begins with path. That request does not get a reply.
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
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the server would not notice that the client has disconnected
		<-r.Context().Done()
	}))
	defer server.Close()
	return l.runIn(ctx, "", false, nil, append([]string{"--api", server.URL}, args...))
}

// AtTerminal runs a command with h as the API. The command's three streams are terminals.
// in is the user's input.
func (l Line) AtTerminal(t testing.TB, h http.Handler, in string, args ...string) Result {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	return l.run(t, in, true, append([]string{"--api", server.URL}, args...))
}

// Against runs a command with h as the API.
func (l Line) Against(t testing.TB, h http.Handler, args ...string) Result {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	r := l.Run(t, append([]string{"--api", server.URL}, args...)...)
	r.Err = strings.ReplaceAll(r.Err, server.URL, "http://API")
	return r
}

// Screens runs a command with h as the API, on terminals of 80 and 200 columns, and
// compares the output with golden files.
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

// Buffer returns a stream that is not a terminal, and the buffer behind it.
func Buffer(in string) (cli.Stream, *bytes.Buffer) {
	b := bytes.NewBufferString(in)
	return cli.Stream{ReadWriter: b}, b
}

// Replies returns a handler that answers every request with the same body.
func Replies(status int, body any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	})
}

// Paths returns a handler that answers each path with its body, and all others with
// 404.
func Paths(bodies map[string]any) http.Handler {
	mux := http.NewServeMux()
	for path, body := range bodies {
		mux.Handle("GET "+path, Replies(http.StatusOK, body))
	}
	mux.Handle("/", Failure(bourse.CodeNotFound, "no such endpoint"))
	return mux
}

// Failure returns a handler that answers every request with an error.
func Failure(code bourse.Code, text string) http.Handler {
	return Replies(code.Status(), machinesapi.ErrorBody{Error: text, Code: code})
}

// Golden compares got with testdata/<name>.golden, or writes that file if -update is set.
// Lines must fit in 80 columns unless the name contains "wide".
func Golden(t *testing.T, name, got string) {
	t.Helper()
	width := 80
	if strings.Contains(name, "wide") {
		width = 0
	}
	golden(t, name, got, width)
}

// golden implements Golden for any maximum line width in columns; 0 means no limit.
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
		t.Fatalf("%v (run go test -update to create it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", path, diff)
	}
	for line := range strings.Lines(got) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); width > 0 && n > width {
			t.Errorf("%s: a line has %d characters, want at most %d: %s", path, n, width, line)
		}
	}
}
