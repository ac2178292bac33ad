package cli_test

import (
	"bytes"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestPrivateCA checks that commands trust an API's certificate from a private CA only if
// the CA's file is given.
func TestPrivateCA(t *testing.T) {
	server := httptest.NewUnstartedServer(clitest.Replies(http.StatusOK, machinesapi.AppList{Apps: []machinesapi.App{}}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // discard logs of failed handshakes
	server.StartTLS()
	defer server.Close()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := write("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	bare := strings.TrimPrefix(server.URL, "https://")
	for name, c := range map[string]struct {
		args []string
		code int
		text string
	}{
		"with the CA":        {[]string{"--api", server.URL, "--ca", ca}, 0, ""},
		"without a scheme":   {[]string{"--api", bare, "--ca", ca}, 0, ""},
		"without the CA":     {[]string{"--api", server.URL}, 7, "--ca FILE"},
		"with an empty file": {[]string{"--api", server.URL, "--ca", write("empty.pem", "x")}, 2, "no PEM certificate"},
		"missing file":       {[]string{"--api", server.URL, "--ca", filepath.Join(dir, "no.pem")}, 2, "no.pem"},
	} {
		got := line.Run(t, append(c.args, "apps")...)
		if got.Code != c.code || !strings.Contains(got.Err, c.text) {
			t.Errorf("%s: exit status %d, %q; want %d and %q", name, got.Code, got.Err, c.code, c.text)
		}
	}
	var b bytes.Buffer
	env := cli.Env{Out: cli.Stream{ReadWriter: &b}, Err: cli.Stream{ReadWriter: &b}, Getenv: func(name string) string {
		return map[string]string{"BOURSE_CA": ca, "BOURSE_API": bare}[name]
	}}
	if code := line.Main(t.Context(), env, "apps"); code != 0 || b.String() != "[]\n" {
		t.Errorf("with BOURSE_CA: exit status %d, %q", code, &b)
	}
}
