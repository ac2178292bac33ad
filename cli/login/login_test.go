package login_test

import (
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/cli/login"
	"github.com/bourse-dev/bourse/internal/loopback"
	"github.com/bourse-dev/bourse/machinesapi"
)

var line = clitest.Of(login.New, login.NewLogout, login.NewContext, ask)

// ask returns a command that sends a request to the API.
func ask(s *cli.Shell) *cobra.Command {
	return &cobra.Command{Use: "ask", RunE: func(c *cobra.Command, _ []string) error {
		_, err := s.Client().Tokens().Current(c.Context())
		return err
	}}
}

// api returns the API of a cluster with one token.
func api(token string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			clitest.Replies(http.StatusUnauthorized, machinesapi.ErrorBody{Error: "the token is not valid", Code: "unauthorized"}).ServeHTTP(w, r)
			return
		}
		clitest.Replies(http.StatusOK, machinesapi.CurrentTokens{Tokens: []machinesapi.CurrentToken{{Org: "acme"}}}).ServeHTTP(w, r)
	})
}

// home is the environment of a user with a separate home directory.
type home struct {
	t    *testing.T
	vars map[string]string
}

func newHome(t *testing.T) *home {
	dir := t.TempDir()
	return &home{t, map[string]string{"HOME": dir, "BOURSE_RUNTIME_DIR": filepath.Join(dir, "run")}}
}

func (h *home) file() string {
	return filepath.Join(h.vars["HOME"], ".config", "bourse", "contexts.toml")
}

// succeeds runs a command that must succeed, and returns its output.
func (h *home) succeeds(args ...string) string {
	h.t.Helper()
	got := line.RunWith(h.t, h.vars, args...)
	if got.Code != 0 {
		h.t.Fatalf("%s: exit status %d: %s", strings.Join(args, " "), got.Code, got.Err)
	}
	return got.Out
}

// fails runs a command that must fail with a message that contains text.
func (h *home) fails(text string, args ...string) {
	h.t.Helper()
	got := line.RunWith(h.t, h.vars, args...)
	if got.Code == 0 || !strings.Contains(got.Err, text) {
		h.t.Errorf("%s: exit status %d, %q; want %q", strings.Join(args, " "), got.Code, got.Err, text)
	}
}

// TestContexts checks that commands use the cluster that the user logged in to last until
// another one is selected, and that each cluster has its own token and CA.
func TestContexts(t *testing.T) {
	one := httptest.NewServer(api("token-one"))
	defer one.Close()
	two := httptest.NewUnstartedServer(api("token-two"))
	two.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // discard logs of failed handshakes
	two.StartTLS()
	defer two.Close()
	h := newHome(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: two.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := h.succeeds("login", one.URL, "--name", "one", "--token", "token-one"); !strings.Contains(got, "for all of acme") {
		t.Errorf("unexpected output of login: %q", got)
	}
	h.succeeds("ask")
	h.fails("--ca FILE", "login", two.URL, "--name", "two", "--token", "token-two")
	h.succeeds("login", two.URL, "--name", "two", "--token", "token-two", "--ca", ca)
	if err := os.Remove(ca); err != nil { // the context contains a copy of the CA
		t.Fatal(err)
	}
	h.succeeds("ask")
	h.succeeds("ask", "--context", "one")
	h.vars["BOURSE_API_TOKEN"] = "meant for another cluster"
	h.succeeds("ask")
	h.fails("does not accept this token", "ask", "--token", "wrong")
	h.fails("does not accept this token", "ask", "--api", one.URL) // a context's token is sent only to its own API, so the environment's is used
	delete(h.vars, "BOURSE_API_TOKEN")
	h.fails("", "ask", "--api", one.URL)
	h.vars["BOURSE_CONTEXT"] = "one"
	h.succeeds("ask")
	h.fails("mutually exclusive", "ask", "--api", one.URL, "--context", "one")
	h.vars["BOURSE_CONTEXT"] = "three"
	h.fails(`error: context "three" not found`, "ask")
	delete(h.vars, "BOURSE_CONTEXT")

	list := h.succeeds("context", "list")
	for _, want := range []string{"*  two", "   one", "   dev", "http://127.0.0.1:4280", one.URL, "own", "stored"} {
		if !strings.Contains(list, want) {
			t.Errorf("the list does not contain %q:\n%s", want, list)
		}
	}
	if strings.Contains(list+h.succeeds("context", "list", "--json"), "token-") {
		t.Error("the list shows tokens")
	}
	h.succeeds("logout")
	h.fails("there is no current context", "logout")
	h.fails("not found", "context", "use", "two")
	h.succeeds("context", "use", "one")
	h.succeeds("ask")
	h.succeeds("context", "use", "dev")
	h.fails("nothing is stored", "logout")
}

// TestContextsDoNotUseTheEnvironmentsToken checks that the token and CA in the environment
// are used only for the environment's API. They must never be used for a context without a
// token, such as that of "bourse dev", because any local process may listen at its address.
func TestContextsDoNotUseTheEnvironmentsToken(t *testing.T) {
	var shown []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown = append(shown, r.Header.Get("Authorization"))
		clitest.Replies(http.StatusOK, machinesapi.CurrentTokens{}).ServeHTTP(w, r)
	}))
	defer server.Close()
	h := newHome(t)
	h.succeeds("login", server.URL, "--name", "bare", "--token", "x")
	text, err := os.ReadFile(h.file())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.file(), []byte(strings.Replace(string(text), "token = 'x'", "", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	address := netip.MustParseAddrPort(strings.TrimPrefix(server.URL, "http://"))
	if err := loopback.SetDev(func(name string) string { return h.vars[name] }, address); err != nil {
		t.Fatal(err)
	}
	h.vars["BOURSE_API_TOKEN"], h.vars["BOURSE_CA"] = "meant for another cluster", "/no/such/file"
	shown = nil
	h.succeeds("ask")
	h.succeeds("ask", "--context", "dev")
	if want := []string{"", ""}; !slices.Equal(shown, want) {
		t.Errorf("tokens sent: %q, want none", shown)
	}
	delete(h.vars, "BOURSE_CA")
	h.succeeds("ask", "--api", server.URL)
	if got := shown[len(shown)-1]; got != "Bearer meant for another cluster" {
		t.Errorf("token sent with --api: %q", got)
	}
}

// TestConcurrentUpdates checks that concurrent updates do not overwrite each other.
func TestConcurrentUpdates(t *testing.T) {
	h := newHome(t)
	env := func(name string) string { return h.vars[name] }
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			_, err := cli.UpdateContexts(env, func(all *cli.Contexts) error {
				all.ByName[fmt.Sprint("c", i)] = cli.Context{API: "http://x"}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	stored, err := cli.LoadContexts(env)
	if err != nil || len(stored.ByName) != 20 {
		t.Errorf("%d contexts: %v", len(stored.ByName), err)
	}
}

// TestFailedLogin checks that a failed login stores nothing.
func TestFailedLogin(t *testing.T) {
	server := httptest.NewServer(api("good"))
	defer server.Close()
	h := newHome(t)
	h.fails("does not accept this token", "login", server.URL, "--token", "bad")
	h.fails("no token given", "login", server.URL)
	h.fails("reserved for the cluster of", "login", server.URL, "--token", "good", "--name", "dev")
	h.fails("invalid context name", "login", server.URL, "--token", "good", "--name", "a b")
	h.fails("no PEM certificate", "login", server.URL, "--token", "good", "--ca", os.DevNull)
	h.fails("try: bourse login "+server.URL, "login", strings.Replace(server.URL, "http:", "https:", 1), "--token", "good")
	other := httptest.NewServer(http.NotFoundHandler()) // a server that is not a broker
	defer other.Close()
	h.fails("try: the URL of a broker", "login", other.URL, "--token", "good")
	for address, why := range map[string]string{
		"ftp://a": "neither http nor https", "https://": "no host", "https://u:p@a": "only consist of", "https://a/b": "only consist of", "https://a?b": "only consist of", "https://a\x00": "parsed",
	} {
		h.fails(why, "login", address, "--token", "good")
	}
	if _, err := os.Stat(h.file()); !os.IsNotExist(err) {
		t.Errorf("the contexts file exists: %v", err)
	}
}

// TestTokenFromInput checks that login accepts a token that is piped in, or typed without
// echo.
func TestTokenFromInput(t *testing.T) {
	server := httptest.NewServer(api("secret"))
	defer server.Close()
	for name, c := range map[string]struct {
		in       string
		terminal bool
		code     int
	}{
		"piped": {"secret\n", false, 0}, "piped without an end of line": {"secret", false, 0},
		"typed": {"secret\r", true, 0}, "typed with a correction": {"sex\x7fcret\r", true, 0}, "Ctrl-C": {"sec\x03", true, 130},
	} {
		h := newHome(t)
		env, out, errs := clitest.Env(h.vars, c.in, c.terminal)
		code := line.Main(t.Context(), env, "login", server.URL)
		if (code == 0) != (c.code == 0) || strings.Contains(out.String()+errs.String(), "secret") {
			t.Errorf("%s: exit status %d, %q, %q", name, code, out, errs)
		}
		if _, err := os.Stat(h.file()); (err == nil) != (c.code == 0) {
			t.Errorf("%s: contexts file: %v", name, err)
		}
	}
}

// TestUnsafeFile checks that a contexts file is neither used nor overwritten if it is
// malformed or if other users can read it.
func TestUnsafeFile(t *testing.T) {
	server := httptest.NewServer(api("good"))
	defer server.Close()
	h := newHome(t)
	h.succeeds("login", server.URL, "--name", "one", "--token", "good")
	if info, err := os.Stat(h.file()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600: %v", info.Mode(), err)
	}
	if err := os.Chmod(h.file(), 0o640); err != nil {
		t.Fatal(err)
	}
	h.fails("chmod 600", "ask")
	h.fails("chmod 600", "login", server.URL, "--token", "good")
	if err := os.Chmod(h.file(), 0o600); err != nil {
		t.Fatal(err)
	}
	// If the contexts file is a symbolic link, its target is rewritten, so that no token
	// remains there after a logout.
	elsewhere := filepath.Join(h.vars["HOME"], "elsewhere.toml")
	if err := errors.Join(os.Rename(h.file(), elsewhere), os.Symlink(elsewhere, h.file())); err != nil {
		t.Fatal(err)
	}
	h.succeeds("logout")
	if text, err := os.ReadFile(elsewhere); err != nil || strings.Contains(string(text), "good") {
		t.Errorf("after logout: %q, %v", text, err)
	}
	if err := errors.Join(os.Remove(h.file()), syscall.Mkfifo(h.file(), 0o600)); err != nil {
		t.Fatal(err)
	}
	h.fails("not a regular file", "ask")
	if err := os.Remove(h.file()); err != nil {
		t.Fatal(err)
	}
	for text, why := range map[string]string{
		"current = \"one\"\n[context.one\n": "line 2, column", "[context.one]\n": "has no api", "[context.\"a b\"]\napi = \"http://x\"\n": "invalid context name", "current = 7\n": "line 1, column",
	} {
		if err := os.WriteFile(h.file(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		h.fails(why, "ask")
		h.fails(why, "login", server.URL, "--token", "good")
	}
}
