package proxy_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/throttle"
	"github.com/bourse-dev/bourse/proxy"
)

// TestTheLargestOrganizationGivesWay lets one organization use all connections for requests to a slow machine. Another
// organization must then still get a connection immediately. The request that loses its connection, and further
// requests of the first organization, must get a 503. No machine may be marked as failed.
func TestTheLargestOrganizationGivesWay(t *testing.T) {
	at := make(chan struct{}, 8)
	w := newWorld(t)
	addr := rawMachine(t, func(_ net.Conn, in *bufio.Reader) {
		if _, err := http.ReadRequest(in); err == nil {
			at <- struct{}{}
			_, _ = in.ReadByte() // wait until the proxy disconnects
		}
	})
	w.machine(addr)
	w.config.Conns = throttle.NewFairBudget(2)
	w.start(proxy.Listener{})
	ask := func() *bufio.Reader {
		_, in := w.send("GET / HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n")
		return in
	}
	status := func(in *bufio.Reader) int {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	first := ask()
	<-at
	_ = ask()
	<-at
	other, err := proxy.Dial(t.Context(), w.config.Conns, "organization other", &upstream{w: w, addr: addr, done: make(chan struct{})})
	if err != nil {
		t.Fatalf("another organization cannot get a connection: %v", err)
	}
	if got := status(first); got != 503 {
		t.Errorf("the aborted request of the largest organization: status %d, want 503", got)
	}
	if got := status(ask()); got != 503 {
		t.Errorf("another request of the largest organization: status %d, want 503", got)
	}
	_, err = proxy.Dial(t.Context(), w.config.Conns, "organization other", &upstream{w: w, addr: addr, done: make(chan struct{})})
	if bourse.CodeOf(err) != bourse.CodeRateLimited {
		t.Errorf("another connection for an organization with equally many connections: %v", err)
	}
	_, _ = io.WriteString(other, "x")
	_ = other.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.failed) > 0 {
		t.Error("the machine was marked as failed")
	}
}
