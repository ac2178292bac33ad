package test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestRotateKeys replaces the gossip key and the key of secrets of a cluster of three hosts while
// requests pass through the proxy. No request may fail, and the cluster must keep its members. One
// server is down at the beginning, so the rotation must not start before that server runs again.
func TestRotateKeys(t *testing.T) {
	lan := newLAN(t)
	first, second, third := lan.bare("h1"), lan.bare("h2"), lan.bare("h3")
	first.start("bourse worker list", first.setup("init", "--region", "gru")...)
	token, err := first.run("token", "join", "--uses", "2")
	if err != nil {
		t.Fatal(err)
	}
	running := map[*bareHost]*servers{}
	for _, h := range []*bareHost{second, third} {
		running[h] = h.start("is part of cluster", h.setup("join", strings.TrimSpace(token))...)
	}
	running[second].stop()
	second.allowHost()
	second.start(`"role":"worker"`, "serve", "--config", second.file("etc", "bourse.toml"))
	if _, err := first.run("app", "create", "web"); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "a machine runs", func() error {
		_, err := first.run("machine", "run", "host", "--app", "web", "--region", "gru", "--port", "80", "--", "sh", "-c", "exec python3 -m http.server $PORT")
		return err
	})
	eventually(t, patience, "the app answers", func() error { return first.ask("web.localhost") })
	eventually(t, patience, "all are members", first.members(5))

	running[third].stop()
	eventually(t, patience, "the host is known to be down", func() error {
		out, err := first.run("member", "list")
		if err == nil && !strings.Contains(out, "stopped") {
			err = fmt.Errorf("%s", out)
		}
		return err
	})
	before, err := os.ReadFile(first.file("etc", "gossip.key"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.run("credentials", "rotate", "gossip", "--wait", "1ms"); err == nil || !strings.Contains(err.Error(), "h3: the worker is down") {
		t.Errorf("without h3: %v", err)
	}
	if now, err := os.ReadFile(first.file("etc", "gossip.key")); err != nil || string(now) != string(before) {
		t.Errorf("the key was replaced without h3: %v", err)
	}
	third.start(`"role":"worker"`, "serve", "--config", third.file("etc", "bourse.toml"))
	eventually(t, patience, "all are members again", first.members(5))

	requests := first.load("web.localhost")
	began := time.Now()
	out, err := first.run("credentials", "rotate", "gossip")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("rotated within %s:\n%s", time.Since(began), out)
	for _, step := range []string{"give all servers the new key    5 of 5", "encrypt with the new key        5 of 5", "remove the old key              5 of 5"} {
		if !strings.Contains(out, step) {
			t.Errorf("%q is missing", step)
		}
	}
	after, err := os.ReadFile(first.file("etc", "gossip.key"))
	if err != nil || strings.Contains(string(after), strings.TrimSpace(string(before))) {
		t.Errorf("the old key is still in the file: %v", err)
	}
	for _, h := range []*bareHost{second, third} {
		if key, err := os.ReadFile(h.file("etc", "gossip.key")); err != nil || string(key) != string(after) {
			t.Errorf("%s has another file: %v", h.name, err)
		}
	}
	if err := first.members(5)(); err != nil {
		t.Error(err)
	}
	// A worker that starts now knows only the new key.
	token, err = first.run("token", "join")
	if err != nil {
		t.Fatal(err)
	}
	fourth := lan.bare("h4")
	fourth.start("is part of cluster", fourth.setup("join", strings.TrimSpace(token))...)
	eventually(t, patience, "the new host is a member", first.members(6))
	rotateSecrets(first)
	requests.end()
}

// rotateSecrets replaces the key of secrets. The old key encrypts an app's secret, so the rotation
// must wait until the secret was set again. Then the app's machine must get the new value when its
// restart policy starts it, although no broker has sent its worker the new key.
func rotateSecrets(h *bareHost) {
	h.t.Helper()
	must := func(words ...string) string {
		h.t.Helper()
		out, err := h.run(words...)
		if err != nil {
			h.t.Fatal(err)
		}
		return out
	}
	end := h.file("end")
	must("app", "create", "vault")
	must("secrets", "set", "--app", "vault", "WORD=first")
	must("machine", "run", "host", "--app", "vault", "--region", "gru", "--restart", "always", "--", "sh", "-c",
		`echo "the word is $WORD"; until rm `+end+` 2>&-; do sleep 0.1; done; exit 1`)
	says := func(word string) func() error {
		return func() error {
			out, err := h.run("logs", "--app", "vault")
			if err == nil && !strings.Contains(out, "the word is "+word) {
				err = fmt.Errorf("it printed %q", out)
			}
			return err
		}
	}
	eventually(h.t, patience, "the machine has the secret", says("first"))

	out, err := h.run("credentials", "rotate", "secrets")
	if err == nil || !strings.Contains(err.Error(), "the old key still encrypts 1 secret of 1 app: vault") {
		h.t.Errorf("with a secret that the old key encrypts: %s, %v", out, err)
	}
	must("secrets", "set", "--app", "vault", "WORD=second")
	if out := must("credentials", "rotate", "secrets"); !strings.Contains(out, "the key of secrets was replaced") {
		h.t.Errorf("after the secret was set again: %s", out)
	}
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		h.t.Fatal(err)
	}
	eventually(h.t, patience, "the restarted machine has the new secret", says("second"))
}

// allowHost allows the image host on a host whose servers are down.
func (h *bareHost) allowHost() {
	h.t.Helper()
	f, err := os.OpenFile(h.file("etc", "bourse.toml"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("allow-host = true\nephemeral = true\n")
		_ = f.Close() // a lost write shows when the server starts
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// members returns a function that checks that the cluster has n members, which all run.
func (h *bareHost) members(n int) func() error {
	return func() error {
		out, err := h.run("member", "list")
		if err == nil && strings.Count(out, " ok ") != n {
			err = fmt.Errorf("want %d members:\n%s", n, out)
		}
		return err
	}
}

// ask sends a request to the host's own proxy.
func (h *bareHost) ask(app string) error {
	transport := &http.Transport{DialContext: h.dial}
	defer transport.CloseIdleConnections()
	return get(h.t, &http.Client{Transport: transport}, h.addr.String(), app)
}

func get(t *testing.T, client *http.Client, addr, app string) error {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/", nil)
	if err != nil {
		return err
	}
	req.Host = app
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	return nil
}

// load is a series of requests, one after another.
type load struct {
	t      *testing.T
	stop   chan struct{}
	exited chan struct{}
	sent   atomic.Int64
}

// load sends requests to the host's own proxy, and reports every one that fails, until the
// returned load's end is called.
func (h *bareHost) load(app string) *load {
	l := &load{t: h.t, stop: make(chan struct{}), exited: make(chan struct{})}
	go func() {
		defer close(l.exited)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-l.stop:
				return
			case <-tick.C:
			}
			if err := h.ask(app); err != nil {
				l.t.Errorf("request %d: %v", l.sent.Load(), err)
				return
			}
			l.sent.Add(1)
		}
	}()
	return l
}

// end ends the series. At least one request must have succeeded.
func (l *load) end() {
	l.t.Helper()
	close(l.stop)
	<-l.exited
	if l.sent.Load() == 0 {
		l.t.Error("no request has succeeded")
	}
	l.t.Logf("%d requests", l.sent.Load())
}
