package direct_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/fabric/fabrictest"
	"github.com/bourse-dev/bourse/internal/admission"
)

// pipes is a listener and its dialer, connected in memory.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
	close  sync.Once
}

func newPipes() *pipes { return &pipes{accept: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.close.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.accept <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

var someone = bourse.Member{ID: "w1", Role: bourse.RoleWorker, Region: "gru", Address: "192.0.2.1:1"}

// bubble runs a test in virtual time, with a fabric and a worker that serves the pipes.
func bubble(t *testing.T, serve func(p *pipes), test func(t *testing.T, f *direct.Fabric)) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		var wg sync.WaitGroup
		wg.Go(func() { serve(p) })
		f := direct.NewOver(p.dial, nil, admission.Proof{})
		test(t, f)
		f.Close()
		_ = p.Close()
		wg.Wait()
	})
}

// serving runs a real server in a bubble.
func serving(h http.Handler) func(p *pipes) {
	return func(p *pipes) {
		_ = direct.Serve(context.Background(), p, direct.Handler("w1", h), nil, slog.New(slog.DiscardHandler))
	}
}

// upgraded runs a worker that accepts connections for calls, and handles each with behave, which
// reads frames with next.
func upgraded(behave func(c net.Conn, r *bufio.Reader)) func(p *pipes) {
	return func(p *pipes) {
		var wg sync.WaitGroup
		defer wg.Wait()
		for c, err := p.Accept(); err == nil; c, err = p.Accept() {
			wg.Go(func() {
				defer c.Close()
				r := bufio.NewReader(c)
				if _, err := http.ReadRequest(r); err != nil {
					return
				}
				_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: bourse-calls\r\n\r\n")
				behave(c, r)
			})
		}
	}
}

// next reads and discards a frame from a caller.
func next(r *bufio.Reader) (verb string, id uint64, err error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", 0, err
	}
	words := strings.Fields(line)
	if len(words) > 1 {
		id, err = strconv.ParseUint(words[1], 10, 64)
	}
	if len(words) > 4 && err == nil {
		var length int
		if length, err = strconv.Atoi(words[4]); err == nil {
			_, err = r.Discard(length)
		}
	}
	return words[0], id, err
}

// within sends a call with a deadline and returns the time that it took.
func within(t *testing.T, f *direct.Fabric, d time.Duration, body string) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	began := time.Now()
	_, err = fabrictest.Send(ctx, f, someone, body)
	return time.Since(began), err
}

// TestSilentWorker checks that a call's answer is considered lost if the worker has been silent
// for too long.
func TestSilentWorker(t *testing.T) {
	var pings atomic.Int32
	bubble(t, upgraded(func(_ net.Conn, r *bufio.Reader) {
		for {
			verb, _, err := next(r)
			if err != nil {
				return
			}
			if verb == "PING" {
				pings.Add(1)
			}
		}
	}), func(t *testing.T, f *direct.Fabric) {
		took, err := within(t, f, time.Hour, "{}")
		wantCode(t, err, bourse.CodeTimeout)
		if took > 15*time.Second || pings.Load() != 1 {
			t.Errorf("the call failed after %s and %d pings", took, pings.Load())
		}
	})
}

// TestWorkerThatDoesNotRead checks that callers wait no longer than their deadlines, and
// that unsent calls are reported as such.
func TestWorkerThatDoesNotRead(t *testing.T) {
	bubble(t, upgraded(func(net.Conn, *bufio.Reader) { time.Sleep(time.Hour) }), func(t *testing.T, f *direct.Fabric) {
		took, err := within(t, f, 100*time.Millisecond, "first")
		wantCode(t, err, bourse.CodeTimeout)
		if took != 100*time.Millisecond {
			t.Errorf("the first call took %s", took)
		}
		took, err = within(t, f, 100*time.Millisecond, "second")
		wantCode(t, err, bourse.CodeTimeout)
		if took != 100*time.Millisecond {
			t.Errorf("the second call took %s", took)
		}
		took, err = within(t, f, time.Hour, "third")
		wantCode(t, err, bourse.CodeUnavailable)
		if took > 10*time.Second {
			t.Errorf("the failure was reported after %s", took)
		}
	})
}

// TestLongCalls checks that a call may take a long time, and that an idle connection is closed and reopened for the
// next call.
func TestLongCalls(t *testing.T) {
	bubble(t, serving(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(10 * time.Minute):
		case <-r.Context().Done():
			t.Errorf("the handler ended because of %v", context.Cause(r.Context()))
		}
	})), func(t *testing.T, f *direct.Fabric) {
		for range 2 {
			took, err := within(t, f, time.Hour, "{}")
			if err != nil || took != 10*time.Minute {
				t.Errorf("got %v after %s", err, took)
			}
			time.Sleep(50 * time.Second)
			if f.Conns() != 1 {
				t.Error("the connection was closed early")
			}
			time.Sleep(30 * time.Second)
			if f.Conns() != 0 {
				t.Error("an unused connection is still open")
			}
		}
	})
}

// TestSilentCaller checks that a worker cancels the calls of a caller that has become silent.
func TestSilentCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := newPipes(), fabrictest.NewStuck()
		var wg sync.WaitGroup
		wg.Go(func() { serving(s)(p) })
		c, err := p.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, "GET /worker/calls HTTP/1.1\r\nHost: w1\r\nConnection: Upgrade\r\nUpgrade: bourse-calls\r\n\r\n")
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols { //nolint:bodyclose // the response has no body
			t.Fatalf("got %+v, %v", resp, err)
		}
		_, _ = io.WriteString(c, "CALL 1 /x 0 2 POST\n{}")
		began := time.Now()
		<-s.Left
		if took := time.Since(began); took > 2*time.Minute {
			t.Errorf("the failure was reported after %s", took)
		}
		_ = p.Close()
		wg.Wait()
	})
}

// TestStrangeWorker checks that invalid data from a worker affects only calls to that worker.
func TestStrangeWorker(t *testing.T) {
	for name, says := range map[string]string{
		"text":                      "SSH-2.0-OpenSSH_9.6\r\nHello there",
		"nothing":                   "",
		"a call":                    "CALL 1 /x 0 0 POST\n",
		"an endless answer":         "DONE 1 200 9223372036854775807 -\n",
		"a truncated large answer":  "DONE 1 200 16777216 -\n..",
		"half a line":               "DONE 1 2",
		"no status":                 "DONE 1 1 0 -\n",
		"a truncated line":          "DONE 1\n",
		"an answer to another call": "DONE 2 200 0 -\n",
		"broken":                    "LOST 1\n",
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, upgraded(func(c net.Conn, r *bufio.Reader) {
				_, _, _ = next(r)
				_, _ = io.WriteString(c, says)
			}), func(t *testing.T, f *direct.Fabric) {
				_, err := within(t, f, time.Minute, "{}")
				wantCode(t, err, bourse.CodeTimeout)
			})
		})
	}
	t.Run("an answer again", func(t *testing.T) {
		bubble(t, upgraded(func(c net.Conn, r *bufio.Reader) {
			_, id, _ := next(r)
			for range 2 {
				_, _ = fmt.Fprintf(c, "DONE %d 200 2 -\nok", id)
			}
			_, _, _ = next(r)
		}), func(t *testing.T, f *direct.Fabric) {
			a, err := fabrictest.Send(t.Context(), f, someone, "{}")
			if err != nil || string(a.Body) != "ok" {
				t.Errorf("got %q, %v", a.Body, err)
			}
		})
	})
}

// TestStrangeCaller checks that invalid data from a caller ends only its own connection.
func TestStrangeCaller(t *testing.T) {
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	ln, _ := serve(t, direct.Handler("w1", ok), nil)
	f := direct.New(nil)
	t.Cleanup(f.Close)
	for name, says := range map[string]string{
		"text":          "GET / HTTP/1.1\r\nHost: w1\r\n\r\n",
		"an answer":     "DONE 1 200 2 -\nok",
		"a pong":        "PONG\n",
		"a large ping":  "PING hello, how are you?\n",
		"half a frame":  "CALL 1 /x 0 2 POST\n{",
		"a large claim": "CALL 1 /x 0 262145 POST\n",
	} {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "GET /worker/calls HTTP/1.1\r\nHost: w1\r\nConnection: Upgrade\r\nUpgrade: bourse-calls\r\n\r\n"+says)
		if name == "half a frame" {
			_ = c.(*net.TCPConn).CloseWrite()
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: the connection is still open", name)
		}
		c.Close()
		if _, err := fabrictest.Send(t.Context(), f, member("w1", ln), "{}"); err != nil {
			t.Errorf("%s: another call: %v", name, err)
		}
	}
}

// TestStrangeUpgrade checks the possible responses to the upgrade request.
func TestStrangeUpgrade(t *testing.T) {
	for name, c := range map[string]struct {
		says string
		want int // status of the response
		code bourse.Code
	}{
		"another protocol":  {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 101, ""},
		"too early":         {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: bourse-calls\r\n\r\nPONG\n", 0, bourse.CodeUnavailable},
		"an endless header": {"HTTP/1.1 101 Switching Protocols\r\n" + strings.Repeat("X: y\r\n", 20_000), 0, bourse.CodeUnavailable},
		"not found":         {"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 404, ""},
		"not allowed":       {"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\n{}", 403, ""},
		"no HTTP":           {"220 ready\r\n", 0, bourse.CodeUnavailable},
		"nothing":           {"", 0, bourse.CodeUnavailable},
		"another worker":    {"HTTP/1.1 421 Misdirected Request\r\nContent-Length: 0\r\n\r\n", 0, bourse.CodeUnavailable},
		"it is closing":     {"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", 503, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(p *pipes) {
				for conn, err := p.Accept(); err == nil; conn, err = p.Accept() {
					_, _ = http.ReadRequest(bufio.NewReader(conn))
					_, _ = io.WriteString(conn, c.says)
					conn.Close()
				}
			}, func(t *testing.T, f *direct.Fabric) {
				a, err := fabrictest.Send(t.Context(), f, someone, "{}")
				if a.Status != c.want || bourse.CodeOf(err) != c.code {
					t.Errorf("got %d, %v", a.Status, err)
				}
			})
		})
	}
}

// TestRenew checks that, after a renewal, later calls and requests use new connections, and those in progress end
// normally on the old ones.
func TestRenew(t *testing.T) {
	var conns sync.Map // the connections on which requests have arrived
	hold, held := make(chan struct{}), make(chan struct{}, 2)
	n := newNetwork(t, newCA(t))
	to := n.Serve("w1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			held <- struct{}{}
			<-hold
		} else {
			conns.Store(r.RemoteAddr, true)
		}
		_, _ = io.WriteString(w, "ok")
	})).Member
	call := func(path string) error {
		a, err := n.fabric.Send(t.Context(), to, &fabric.Message{Method: http.MethodPost, URI: path, Body: []byte("x")})
		if err == nil && string(a.Body) != "ok" {
			err = fmt.Errorf("the answer is %q", a.Body)
		}
		return err
	}
	request := func(path string) error {
		resp, err := n.fabric.Call(t.Context(), to, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path}, Header: http.Header{}})
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		return err
	}
	var slow sync.WaitGroup
	for _, do := range []func(string) error{call, request} {
		slow.Go(func() {
			if err := do("/hold"); err != nil {
				t.Errorf("a call in progress while the certificate was renewed: %v", err)
			}
		})
	}
	<-held
	<-held
	for range 2 {
		if err := errors.Join(call("/"), request("/")); err != nil {
			t.Error(err)
		}
	}
	n.fabric.Renew()
	if err := errors.Join(call("/"), request("/")); err != nil {
		t.Error(err)
	}
	close(hold)
	slow.Wait()
	count := 0
	conns.Range(func(any, any) bool { count++; return true })
	if count != 4 {
		t.Errorf("requests used %d connections, want 2 before the renewal and 2 after it", count)
	}
}
