package direct_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/fabric/fabrictest"
	"github.com/bourse-dev/bourse/internal/admission"
)

const patience = time.Minute

// both runs a test without and with TLS.
func both(t *testing.T, test func(t *testing.T, n *network)) {
	t.Run("plain", func(t *testing.T) { test(t, newNetwork(t, nil)) })
	t.Run("TLS", func(t *testing.T) { test(t, newNetwork(t, newCA(t))) })
}

func await(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("timed out waiting for %s", what)
	}
}

func wantCode(t *testing.T, err error, want bourse.Code) {
	t.Helper()
	if got := bourse.CodeOf(err); err == nil || got != want {
		t.Errorf("got %v (code %q), want code %q", err, got, want)
	}
}

// TestMessage checks that the handler receives the message and the sender's identity, and that the sender receives the
// answer.
func TestMessage(t *testing.T) {
	both(t, func(t *testing.T, n *network) {
		w := n.Serve("w1", admission.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprintln(w, r.Method, r.URL, r.RequestURI, len(r.Header), r.ContentLength, string(body), r.RemoteAddr != "")
			if r.TLS != nil {
				who, err := admission.IdentityOf(r.TLS.PeerCertificates[0])
				fmt.Fprintln(w, who.ID, who.Role, err)
			}
		}), bourse.RoleBroker))
		want := "POST /worker/claim?a=1 /worker/claim?a=1 0 11 the request true\n"
		if n.ca != nil {
			want += "broker-1 broker <nil>\n"
		}
		for range 2 {
			a, err := fabrictest.Send(t.Context(), n.fabric, w.Member, "the request")
			if err != nil || a.Status != http.StatusAccepted || string(a.Body) != want {
				t.Errorf("got %d %q, %v, want %q", a.Status, a.Body, err, want)
			}
		}
	})
}

// TestMessageProvesItself checks that messages are authorized by the certificate of their
// connection.
func TestMessageProvesItself(t *testing.T) {
	ca := newCA(t)
	server := credentials(t, ca, "w1", bourse.RoleWorker).Server(bourse.RoleBroker, bourse.RoleWorker)
	ln, _ := serve(t, direct.Handler("w1", admission.Require(refuse(t), bourse.RoleBroker)), server)
	f := direct.New(credentials(t, ca, "w2", bourse.RoleWorker).Client)
	t.Cleanup(f.Close)
	a, err := fabrictest.Send(t.Context(), f, member("w1", ln), "{}")
	if err != nil || a.Status != http.StatusForbidden {
		t.Errorf("got %d %q, %v, want forbidden", a.Status, a.Body, err)
	}
	_, _, err = fabric.Trader{Fabric: f}.Claim(t.Context(), member("w0", ln), &bourse.Claim{})
	wantCode(t, err, bourse.CodeUnavailable)
}

// TestMessageSizes checks that answers of any size arrive complete.
func TestMessageSizes(t *testing.T) {
	both(t, func(t *testing.T, n *network) {
		reply := bytes.Repeat([]byte("0123456789abcdef!"), 1<<18)
		w := n.Serve("w1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			size, _ := strconv.Atoi(strings.TrimSpace(string(text)))
			_, _ = w.Write(reply[:size])
		}))
		for _, size := range []int{0, 1, 16 << 10, 64<<10 - 1, 64 << 10, 64<<10 + 1, 3 << 20} {
			body := strconv.Itoa(size) + strings.Repeat(" ", min(size, 200<<10))
			a, err := fabrictest.Send(t.Context(), n.fabric, w.Member, body)
			if err != nil || a.Status != http.StatusOK || !bytes.Equal(a.Body, reply[:size]) {
				t.Errorf("%d bytes: got %d, status %d, %v", size, len(a.Body), a.Status, err)
			}
		}
	})
}

// TestLargeMessage checks that a message that is too large for a call is sent as a request.
func TestLargeMessage(t *testing.T) {
	both(t, func(t *testing.T, n *network) {
		w := n.Serve("w1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			size, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, r.Method, " ", r.URL, " ", size, " ", r.Header.Get("Bourse-To"))
		}))
		for size, want := range map[int]string{
			256 << 10: "POST /worker/claim?a=1 262144 ", 256<<10 + 1: "POST /worker/claim?a=1 262145 w1",
		} {
			a, err := fabrictest.Send(t.Context(), n.fabric, w.Member, strings.Repeat("x", size))
			if err != nil || string(a.Body) != want {
				t.Errorf("%d bytes: got %q, %v, want %q", size, a.Body, err, want)
			}
		}
	})
}

// TestCallerGoes checks that a worker cancels the calls of a caller that has disconnected.
func TestCallerGoes(t *testing.T) {
	both(t, func(t *testing.T, n *network) {
		s := fabrictest.NewStuck()
		w := n.Serve("w1", s)
		outcome := make(chan error, 1)
		go func() {
			_, err := fabrictest.Send(t.Context(), n.fabric, w.Member, "{}")
			outcome <- err
		}()
		await(t, "the call", s.Arrived)
		n.fabric.Close()
		wantCode(t, <-outcome, bourse.CodeTimeout)
		await(t, "the handler to end", s.Left)
		if !errors.Is(s.Cause, context.Canceled) {
			t.Errorf("the handler ended because of %v", s.Cause)
		}
	})
}

// TestWorkerRestarts checks that a restarted worker can be called at its address, but another
// worker at that address cannot.
func TestWorkerRestarts(t *testing.T) {
	both(t, func(t *testing.T, n *network) {
		echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
		w := n.Serve("w1", echo)
		for range 2 {
			if a, err := fabrictest.Send(t.Context(), n.fabric, w.Member, "hello"); err != nil || string(a.Body) != "hello" {
				t.Fatalf("got %q, %v", a.Body, err)
			}
			w.Kill()
			n.at = w.Member.Address
			for end := time.Now().Add(patience); n.fabric.Conns() > 0 && time.Now().Before(end); {
				runtime.Gosched() // until the fabric has noticed the end of the connection
			}
			w = n.Serve("w1", echo)
		}
		w.Kill()
		n.Serve("w2", refuse(t))
		_, err := fabrictest.Send(t.Context(), n.fabric, w.Member, "hello")
		wantCode(t, err, bourse.CodeUnavailable)
	})
}

// TestTooManyCalls checks that calls beyond the limit are refused immediately.
func TestTooManyCalls(t *testing.T) {
	n := newNetwork(t, nil)
	arrived, finish := make(chan struct{}, direct.CallsOnce), make(chan struct{})
	w := n.Serve("w1", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-finish
	}))
	var wg sync.WaitGroup
	for range direct.CallsOnce {
		wg.Go(func() {
			if _, err := fabrictest.Send(t.Context(), n.fabric, w.Member, "{}"); err != nil {
				t.Errorf("a call within the limit: %v", err)
			}
		})
	}
	for range direct.CallsOnce {
		<-arrived
	}
	_, _, err := fabric.Trader{Fabric: n.fabric}.Claim(t.Context(), w.Member, &bourse.Claim{})
	wantCode(t, err, bourse.CodeUnavailable)
	close(finish)
	wg.Wait()
}

// TestHandlerPanics checks that a panicking handler leaves the outcome unknown and does not crash its worker.
func TestHandlerPanics(t *testing.T) {
	n := newNetwork(t, nil)
	w := n.Serve("w1", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if b, _ := io.ReadAll(r.Body); string(b) != "well" {
			panic("a bug")
		}
	}))
	_, err := fabrictest.Send(t.Context(), n.fabric, w.Member, "{}")
	wantCode(t, err, bourse.CodeTimeout)
	if _, err := fabrictest.Send(t.Context(), n.fabric, w.Member, "well"); err != nil {
		t.Errorf("the next call: %v", err)
	}
}
