package throttle_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/throttle"
)

// server serves h within limits, in a bubble of virtual time. It returns a function that connects
// to it.
func server(t *testing.T, limits *throttle.Bodies, h http.HandlerFunc) func() net.Conn {
	t.Helper()
	dialed := make(chan net.Conn)
	ended := make(chan struct{})
	s := &http.Server{Handler: limits.Handler(h), IdleTimeout: time.Hour} //nolint:gosec // the tests send headers without delay
	go func() {
		defer close(ended)
		_ = s.Serve(pipes{dialed, make(chan struct{})})
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-ended
		time.Sleep(time.Second) // virtual time, in which connections are closed in two steps
	})
	return func() net.Conn {
		here, there := net.Pipe()
		dialed <- there
		t.Cleanup(func() { _ = here.Close() })
		return here
	}
}

type pipes struct {
	dialed chan net.Conn
	closed chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.dialed:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// readAll replies with the number of bytes that it has read, or with the code of the error.
func readAll(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, string(bourse.CodeOf(throttle.BodyError(err))), http.StatusBadRequest)
		return
	}
	_, _ = fmt.Fprint(w, len(body))
}

func answer(t *testing.T, c net.Conn) string {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// A client that declares 4 MiB and sends one byte loses its request after ten seconds. Without
// limits it would keep the request forever.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := server(t, throttle.NewBodies(1<<20), readAll)()
		began := time.Now()
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{", 4<<20)
		if got := answer(t, c); got != string(bourse.CodeInvalid) {
			t.Errorf("answer %q, want %s", got, bourse.CodeInvalid)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("the request took %s, want 10s", took)
		}
	})
}

// A client that sends a byte every five seconds loses its request after a
// minute.
func TestTrickle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := server(t, throttle.NewBodies(1<<20), readAll)()
		began := time.Now()
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", 4<<20)
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				if _, err := c.Write([]byte("x")); err != nil {
					return
				}
				time.Sleep(5 * time.Second)
			}
		})
		if got := answer(t, c); got != string(bourse.CodeInvalid) {
			t.Errorf("answer %q, want %s", got, bourse.CodeInvalid)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("the request took %s, want 1m", took)
		}
		_ = c.Close()
		wg.Wait()
	})
}

// A body that its handler does not read has the same deadlines as one that is read.
func TestUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := server(t, throttle.NewBodies(1<<20), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })()
		fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{")
		began := time.Now()
		_, _ = io.Copy(io.Discard, c) // until the server closes the connection
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("the connection was closed after %s, want at most 11s", took)
		}
	})
}

// After its body has been read, a request may take any time, and its connection is reused.
func TestAfterTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := server(t, throttle.NewBodies(1<<20), func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			select {
			case <-time.After(10 * time.Minute):
				w.WriteHeader(http.StatusOK)
			case <-r.Context().Done():
				w.WriteHeader(http.StatusRequestTimeout)
			}
		})()
		for range 2 {
			fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("status %d, want 200", resp.StatusCode)
			}
		}
	})
}

// A body that is streamed has no deadline and does not count.
func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := server(t, throttle.NewBodies(64), func(w http.ResponseWriter, r *http.Request) {
			throttle.StreamBody(r)
			readAll(w, r)
		})()
		fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 200\r\n\r\n")
		fmt.Fprint(c, strings.Repeat("x", 100))
		time.Sleep(time.Hour) // virtual time
		fmt.Fprint(c, strings.Repeat("x", 100))
		if got := answer(t, c); got != "200" {
			t.Errorf("answer %q, want 200", got)
		}
	})
}

// All bodies together take at most the budget. Once it is used up, a large body is refused until
// others have ended. A part of the budget is reserved for small bodies.
func TestBudget(t *testing.T) {
	const total, large = 1 << 20, 200 << 10 // three large bodies fit into three quarters of total
	limits := throttle.NewBodies(total)
	read, end := make(chan error, 4), make(chan struct{})
	var wg sync.WaitGroup
	h := limits.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		read <- err
		<-end
	}))
	send := func(n int) error {
		wg.Go(func() {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", n))))
		})
		return <-read
	}
	for range 3 {
		if err := send(large); err != nil {
			t.Fatalf("within the budget: %v", err)
		}
	}
	if err := send(large); bourse.CodeOf(err) != bourse.CodeRateLimited {
		t.Errorf("beyond the budget: %v, want %s", err, bourse.CodeRateLimited)
	}
	if err := send(1 << 10); err != nil {
		t.Errorf("a small body next to large ones: %v", err)
	}
	close(end)
	wg.Wait()
	if err := send(large); err != nil {
		t.Errorf("after the others have ended: %v", err)
	}
	wg.Wait()
}

// TestLargestHolderLosesItsOldestBody has the slow bodies of one organization use up the budget. The body of another
// organization must be read immediately. The oldest slow body must be refused with 429, like further bodies of the
// first organization.
func TestLargestHolderLosesItsOldestBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total, large = 1 << 20, 200 << 10
		dial := server(t, throttle.NewBodies(total), func(w http.ResponseWriter, r *http.Request) {
			throttle.BodyFor(r, r.Header.Get("Org"))
			readAll(w, r)
		})
		send := func(org string, declared, sent int) net.Conn {
			c := dial()
			go func() {
				fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nOrg: %s\r\nContent-Length: %d\r\n\r\n%s", org, declared, strings.Repeat("x", sent))
			}()
			synctest.Wait()
			return c
		}
		began := time.Now()
		var slow []net.Conn
		for range 3 {
			slow = append(slow, send("acme", large+1, large))
		}
		if got := answer(t, send("acme", large, large)); got != string(bourse.CodeRateLimited) {
			t.Errorf("another body of the same organization: %q, want %s", got, bourse.CodeRateLimited)
		}
		if got := answer(t, send("rival", large, large)); got != fmt.Sprint(large) {
			t.Errorf("a body of another organization: %q, want %d", got, large)
		}
		if got := answer(t, slow[0]); got != string(bourse.CodeRateLimited) {
			t.Errorf("the oldest body of the largest holder: %q, want %s", got, bourse.CodeRateLimited)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the answers took %s, want no time", took)
		}
		for _, c := range slow[1:] {
			_, _ = c.Write([]byte("x"))
			if got := answer(t, c); got != fmt.Sprint(large+1) {
				t.Errorf("the other bodies of the largest holder: %q, want %d", got, large+1)
			}
		}
	})
}
