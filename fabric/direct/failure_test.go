package direct_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
)

// TestAddressReused checks that nothing is sent to another worker that has taken over a worker's address while a
// connection to the address was kept open.
func TestAddressReused(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t, nil)
			if secure {
				n = newNetwork(t, newCA(t))
			}
			var claims atomic.Int32
			w := n.Serve("w2", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				claims.Add(1)
				fabric.WriteBody(w, bourse.Facts{Worker: "w2"})
			}))
			if _, err := fabric.WorkerFacts.Call(t.Context(), n.fabric, w.Member, struct{}{}); err != nil {
				t.Fatalf("worker w2: %v", err)
			}
			old := w.Member
			old.ID = "w1"
			_, err := fabric.WorkerFacts.Call(t.Context(), n.fabric, old, struct{}{})
			if bourse.CodeOf(err) != bourse.CodeUnavailable || claims.Load() != 1 {
				t.Errorf("got %v after %d requests, want unavailable after 1", err, claims.Load())
			}
		})
	}
}

// TestKeptConnectionClosed checks that a connection closed by its server is replaced, and that the request is sent
// once.
func TestKeptConnectionClosed(t *testing.T) {
	ln := listen(t)
	closed := make(chan struct{})
	go func() {
		for i := 0; ; i++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n\xa0")
			}
			c.Close()
			if i == 0 {
				close(closed)
			}
		}
	}()
	f := direct.New(nil)
	t.Cleanup(f.Close)
	for i := range 2 {
		if _, err := fabric.WorkerFacts.Call(t.Context(), f, member("w1", ln), struct{}{}); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		<-closed
	}
}

// TestNotHTTP checks the errors for servers that are not Bourse servers.
func TestNotHTTP(t *testing.T) {
	tests := map[string]func(net.Conn){
		"sends nothing":     func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		"hangs up":          func(net.Conn) {},
		"speaks SSH":        func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.6\r\n") },
		"sends half a body": func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{") },
		"sends a redirect": func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
		},
		"sends 1 MB header": func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for range 20_000 {
				if _, err := io.WriteString(c, "X: 0123456789012345678901234567890123456789012345678\r\n"); err != nil {
					return
				}
			}
		},
	}
	for name, behave := range tests {
		t.Run(name, func(t *testing.T) {
			ln := listen(t)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for c, err := ln.Accept(); err == nil; c, err = ln.Accept() {
					behave(c)
					c.Close()
				}
			}()
			f := direct.New(nil)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, _, err := fabric.Trader{Fabric: f}.Claim(ctx, member("w1", ln), &bourse.Claim{})
			// A server that does not accept calls receives none. If a server refuses the upgrade with an error, the
			// error is the answer to the call.
			if unsent := name != "sends a redirect"; err == nil || (bourse.CodeOf(err) == bourse.CodeUnavailable) != unsent {
				t.Errorf("got %v, want an error; unknown outcome: %v", err, !unsent)
			}
			ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			a, err := fabric.SendByCall(ctx, f.Call, member("w1", ln), &fabric.Message{Method: "POST", URI: "/worker/order/claim", Body: []byte("{}")})
			if bourse.CodeOf(err) == bourse.CodeUnavailable || err == nil && a.Status < 300 {
				t.Errorf("a request: %d, %v, want an error with an unknown outcome", a.Status, err)
			}
			_, err = fabric.WorkerFacts.Call(ctx, f, member("w1", ln), struct{}{})
			if err == nil {
				t.Error("the query succeeded")
			}
			f.Close()
			ln.Close()
			<-done
		})
	}
}

// TestAbsurdAddresses checks that calls to a member with an invalid address are reported as not sent.
func TestAbsurdAddresses(t *testing.T) {
	for _, config := range []bool{false, true} {
		n := newNetwork(t, nil)
		if config {
			n = newNetwork(t, newCA(t))
		}
		for _, address := range []string{"", ":", "nonsense", "127.0.0.1:99999", "127.0.0.1:1/x", "a b:1", "[::1:1", "\x00:1"} {
			_, err := fabric.WorkerFacts.Call(t.Context(), n.fabric, bourse.Member{ID: "w1", Role: bourse.RoleWorker, Address: address}, struct{}{})
			if bourse.CodeOf(err) != bourse.CodeUnavailable {
				t.Errorf("address %q: got %v, want unavailable", address, err)
			}
		}
	}
}
