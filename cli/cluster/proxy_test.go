package cluster

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

func some() machinesapi.ProxyList {
	machines := []machinesapi.ProxyMachine{
		{Machine: "148e21ea1d5389", Region: "gru", State: bourse.StateStarted, Requests: 3, OtherRequests: 1, Soft: 20, Use: machinesapi.UseNow},
		{Machine: "148e21ea1d5390", Region: "gru", State: bourse.StateStopped, Soft: 20, Use: machinesapi.UseStart, Why: "it is stopped: a request starts it"},
		{Machine: "148e21ea1d5391", Region: "mad", State: bourse.StateStarted, Soft: 20, Use: machinesapi.UseNever, Why: "it is cordoned"},
	}
	local := machinesapi.ProxyRoute{App: "web", Ports: "80", Machines: machines, URLs: []string{"http://web.localhost:8080/"}}
	named := machinesapi.ProxyRoute{App: "web", Ports: "443", Machines: machines[:1], URLs: []string{"https://web.example.com/", "http://web.example.com/"}}
	return machinesapi.ProxyList{Proxies: []machinesapi.Proxy{
		{ID: "proxy-gru", Region: "gru", Routes: []machinesapi.ProxyRoute{named, local}},
		{ID: "proxy-mad", Region: "mad", Error: "connection refused"},
	}}
}

func TestProxyStatus(t *testing.T) {
	got := line.Against(t, clitest.Replies(http.StatusOK, some()), "proxy", "status")
	clitest.Golden(t, "proxy_status_wide", got.Out+got.Err)
	line.Screens(t, "proxy_status", clitest.Replies(http.StatusOK, machinesapi.ProxyList{Proxies: some().Proxies[:1]}), "proxy", "status", "web")
	if got := line.Against(t, clitest.Replies(http.StatusOK, machinesapi.ProxyList{}), "proxy", "status"); got.Out != "" || got.Err == "" || got.Code != 0 {
		t.Errorf("without proxies: %+v", got)
	}
}

func TestOpen(t *testing.T) {
	const first = "https://web.example.com/\n"
	replies := clitest.Replies(http.StatusOK, some())
	if got := line.Against(t, replies, "open", "web"); got.Out != first || got.Code != 0 {
		t.Errorf("open: %+v", got)
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("fly.toml", []byte("app = \"web\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := line.Against(t, clitest.Paths(map[string]any{"/v1/apps/web/proxies": some()}), "open"); got.Out != first || got.Code != 0 {
		t.Errorf("open of the app in the working directory: %+v", got)
	}
	if got := line.Against(t, replies, "open", "--all", "web"); got.Out != first+"http://web.localhost:8080/\nhttp://web.example.com/\n" {
		t.Errorf("open --all: %+v", got)
	}
	if got := line.Against(t, clitest.Replies(http.StatusOK, machinesapi.ProxyList{}), "open", "web"); got.Code != 3 {
		t.Errorf("open of an app without a route: %+v", got)
	}
}

// TestOpenBrowser checks that on a terminal, the program in $BROWSER is called with the
// URL, but only if the scheme is HTTP or HTTPS.
func TestOpenBrowser(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, seen := filepath.Join(dir, "browser"), filepath.Join(dir, "seen")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nprintf '%s ' \"$@\" >>"+seen+"\n"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	for _, c := range []struct{ browser, url, want string }{
		{program + ":other", "http://a/", "http://a/ "},
		{program + " --new %s -x", "https://a/", "--new https://a/ -x "},
		{program, "file:///etc/passwd", ""},
		{program, "tcp://127.0.0.1:5432", ""},
	} {
		list := machinesapi.ProxyList{Proxies: []machinesapi.Proxy{{Routes: []machinesapi.ProxyRoute{{URLs: []string{c.url}}}}}}
		server := httptest.NewServer(clitest.Replies(http.StatusOK, list))
		env := cli.Env{Now: func() time.Time { return clitest.Now }, Getenv: func(name string) string {
			return map[string]string{"BROWSER": c.browser}[name]
		}}
		var out, errs *bytes.Buffer
		env.In, _ = clitest.Buffer("")
		env.Out, out = clitest.Buffer("")
		env.Err, errs = clitest.Buffer("")
		env.Out.TTY = true
		_ = os.Remove(seen)
		code := line.Main(t.Context(), env, "--api", server.URL, "open", "web")
		server.Close()
		got, _ := os.ReadFile(seen)
		if code != 0 || string(got) != c.want || out.String() != c.url+"\n" {
			t.Errorf("BROWSER=%s: the program received %q, want %q; exit status %d, %s%s", c.browser, got, c.want, code, out, errs)
		}
	}
}
