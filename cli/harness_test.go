package cli

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestMain has all tests show times as they are in UTC, before any of them has
// started what may read the clock.
func TestMain(m *testing.M) {
	time.Local = time.UTC
	os.Exit(m.Run())
}

// now is the present moment of every test that shows an age.
var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// result is what a person has before them after a command.
type result struct {
	code     int
	out, err string
}

// buffer is a stream that is no terminal.
func buffer(in string) (Stream, *bytes.Buffer) {
	b := bytes.NewBufferString(in)
	return Stream{ReadWriter: b}, b
}

// runMain runs the command line.
func runMain(t testing.TB, args ...string) result {
	t.Helper()
	env := Env{Getenv: func(string) string { return "" }, Now: func() time.Time { return now }}
	var out, errs *bytes.Buffer
	env.In, _ = buffer("")
	env.Out, out = buffer("")
	env.Err, errs = buffer("")
	code := Main(t.Context(), env, args)
	return result{code, out.String(), errs.String()}
}

// against runs the command line against a handler as the API.
func against(t testing.TB, h http.Handler, args ...string) result {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	r := runMain(t, append([]string{"--api", server.URL}, args...)...)
	r.err = strings.ReplaceAll(r.err, server.URL, "http://API")
	return r
}

// replies serves one body to every request.
func replies(status int, body any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	})
}

func failure(code bourse.Code, text string) http.Handler {
	return replies(machinesapi.StatusOf(code), machinesapi.ErrorBody{Error: text, Code: code})
}

// golden compares got with testdata/<name>.golden; -update writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test ./cli -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", path, diff)
	}
	for line := range strings.Lines(got) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 80 && !strings.Contains(name, "wide") {
			t.Errorf("%s: a line of %d characters does not fit on 80 columns: %s", path, n, line)
		}
	}
}
