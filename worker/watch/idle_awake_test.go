package watch

import (
	"context"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

// call sends a request to a machine's socket, and returns the status.
func call(t *testing.T, path, method, query, body string) int {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://localhost/v1/awake"+query, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "awake") //nolint:usetesting // the path of t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// opened opens the sockets' directory, and serves the sockets until the test ends or end is called.
func opened(t *testing.T, dir string) (a *Awake, tr *Tracker, end func()) {
	t.Helper()
	tr = NewTracker()
	a, err := OpenAwake(dir, tr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = a.Run(ctx) }()
	end = func() { cancel(); <-done }
	t.Cleanup(end)
	return a, tr, end
}

func TestAProgramKeepsItsMachineAwake(t *testing.T) {
	dir := shortDir(t)
	a, tr, end := opened(t, dir)
	const one, two = bourse.MachineID("00000500000001"), bourse.MachineID("00000500000002")
	for range 2 {
		for _, id := range []bourse.MachineID{one, two} {
			if err := a.Listen(id); err != nil {
				t.Fatal(err)
			}
		}
	}
	path := a.Socket(one)
	for _, c := range []struct {
		method, query, body string
		want                int
	}{
		{"PUT", "", "", 400},
		{"PUT", "?ttl=x", "", 400},
		{"PUT", "?ttl=-1s", "", 400},
		{"PUT", "?ttl=0s", "", 400},
		{"PUT", "?ttl=1h1s", "", 400},
		{"PUT", "?ttl=5m", "body", 400},
		{"GET", "", "", 405},
		{"PUT", "?ttl=5m", "", 204},
	} {
		before, _ := tr.Held(one)
		if got := call(t, path, c.method, c.query, c.body); got != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.query, got, c.want)
		}
		if until, _ := tr.Held(one); c.want != 204 && !until.Equal(before) {
			t.Errorf("%s %s was refused, but the machine is held", c.method, c.query)
		}
	}
	if until, by := tr.Held(one); time.Until(until) < 4*time.Minute || by == "" {
		t.Errorf("held until %s by %q", until, by)
	}
	if until, _ := tr.Held(two); !until.IsZero() {
		t.Errorf("another machine is held until %s", until)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm()&0o044 != 0 {
		t.Errorf("other users can list the sockets: %v, %v", info.Mode(), err)
	}

	end() // restart the daemon: the next one does not know of any use, and listens on the same paths
	a, tr, _ = opened(t, dir)
	if a.Socket(one) != path {
		t.Errorf("another path after a restart: %s, previously %s", a.Socket(one), path)
	}
	if err := a.Listen(one); err != nil {
		t.Fatal(err)
	}
	if got := call(t, path, "PUT", "?ttl=1h", ""); got != 204 {
		t.Errorf("status after a restart: %d", got)
	}
	if until, _ := tr.Held(one); time.Until(until) < 59*time.Minute {
		t.Errorf("held until %s after a restart", until)
	}
	if got := call(t, path, "DELETE", "", ""); got != 204 {
		t.Errorf("DELETE: %d", got)
	}
	if until, by := tr.Held(one); !until.IsZero() {
		t.Errorf("held until %s by %q although the program has released the machine", until, by)
	}
	a.Close(one)
	if _, err := os.Stat(path); err == nil {
		t.Error("a stopped machine's socket was not removed")
	}
	if long, _, _ := opened(t, dir+"/"+strings.Repeat("x", 100)); long.Socket(one) != "" || long.Listen(one) != nil {
		t.Error("a path that is too long for a socket")
	}
}

// Connections that send nothing block their own machine's socket only for a limited
// time, and never that of another machine.
func TestSocketsAreBounded(t *testing.T) {
	dir := shortDir(t)
	a, tr, _ := opened(t, dir)
	const bad, good = bourse.MachineID("bad"), bourse.MachineID("good")
	for _, id := range []bourse.MachineID{bad, good} {
		if err := a.Listen(id); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 * awakeConns {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "unix", a.Socket(bad))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	if got := call(t, a.Socket(good), "PUT", "?ttl=1m", ""); got != 204 {
		t.Errorf("another machine's socket: %d", got)
	}
	if _, by := tr.Held(good); by == "" {
		t.Error("the other machine is not held")
	}
}
