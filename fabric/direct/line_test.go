package direct_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
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

// pipes is a listener, and the dialer that reaches it, in memory.
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

// bubble runs a test in virtual time, with a fabric whose worker is what serves
// the pipes.
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

// serving is a real server for a bubble.
func serving(h http.Handler) func(p *pipes) {
	return func(p *pipes) {
		_ = direct.Serve(context.Background(), p, direct.Handler("w1", h), nil, slog.New(slog.DiscardHandler))
	}
}

// upgraded is a worker that takes connections of calls and then behaves. Frames
// are read with next.
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

// next reads a frame.
func next(r *bufio.Reader) (kind byte, number uint64, err error) {
	var head [13]byte
	if _, err = io.ReadFull(r, head[:]); err != nil {
		return 0, 0, err
	}
	_, err = r.Discard(int(binary.BigEndian.Uint32(head[:])))
	return head[4], binary.BigEndian.Uint64(head[5:]), err
}

// written is a frame.
func written(kind byte, number uint64, body string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	b = binary.BigEndian.AppendUint64(append(b, kind), number)
	return append(b, body...)
}

// within sends a call with a deadline, and returns how long it took.
func within(t *testing.T, f *direct.Fabric, d time.Duration, body string) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	began := time.Now()
	_, err = fabrictest.Send(ctx, f, someone, body)
	return time.Since(began), err
}

// TestSilentWorker shows that the answer of a worker that has become silent
// is lost after a while.
func TestSilentWorker(t *testing.T) {
	var pings atomic.Int32
	bubble(t, upgraded(func(_ net.Conn, r *bufio.Reader) {
		for {
			kind, _, err := next(r)
			if err != nil {
				return
			}
			if kind == 5 {
				pings.Add(1)
			}
		}
	}), func(t *testing.T, f *direct.Fabric) {
		took, err := within(t, f, time.Hour, "{}")
		wantCode(t, err, bourse.CodeTimeout)
		if took > 15*time.Second || pings.Load() != 1 {
			t.Errorf("it was known after %s and %d pings", took, pings.Load())
		}
	})
}

// TestWorkerThatDoesNotRead shows that no caller waits longer for it than it
// wants, and that what never left was not sent.
func TestWorkerThatDoesNotRead(t *testing.T) {
	bubble(t, upgraded(func(net.Conn, *bufio.Reader) { time.Sleep(time.Hour) }), func(t *testing.T, f *direct.Fabric) {
		took, err := within(t, f, 100*time.Millisecond, "first")
		wantCode(t, err, bourse.CodeTimeout)
		if took != 100*time.Millisecond {
			t.Errorf("the first was held for %s", took)
		}
		took, err = within(t, f, 100*time.Millisecond, "second")
		wantCode(t, err, bourse.CodeTimeout)
		if took != 100*time.Millisecond {
			t.Errorf("the second was held for %s", took)
		}
		took, err = within(t, f, time.Hour, "third")
		wantCode(t, err, bourse.CodeUnavailable)
		if took > 10*time.Second {
			t.Errorf("it was known after %s", took)
		}
		for range 10 {
			_, sent, err := f.Send(canceledSoon(t), someone, &fabric.Message{Method: "POST", URI: "/x", Body: make([]byte, 200<<10)})
			if err == nil && !sent {
				return // too much waits there
			}
		}
		t.Error("there is no bound to what waits for a worker")
	})
}

func canceledSoon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// TestLongCalls shows that a call may take long, that its connection is
// closed when it has been idle for a while, and made again.
func TestLongCalls(t *testing.T) {
	bubble(t, serving(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(10 * time.Minute):
		case <-r.Context().Done():
			t.Errorf("the handler ended for %v", context.Cause(r.Context()))
		}
	})), func(t *testing.T, f *direct.Fabric) {
		for range 2 {
			took, err := within(t, f, time.Hour, "{}")
			if err != nil || took != 10*time.Minute {
				t.Errorf("got %v after %s", err, took)
			}
			time.Sleep(50 * time.Second)
			if f.Lines() != 1 {
				t.Error("the connection was closed early")
			}
			time.Sleep(30 * time.Second)
			if f.Lines() != 0 {
				t.Error("a connection that nobody uses is kept")
			}
		}
	})
}

// TestSilentCaller shows that a worker cancels the calls of a caller that sends
// nothing any more.
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
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols { //nolint:bodyclose // it has none
			t.Fatalf("got %+v, %v", resp, err)
		}
		_, _ = c.Write(written(1, 1, "\x04POST\x02/x{}"))
		began := time.Now()
		<-s.Left
		if took := time.Since(began); took > 2*time.Minute {
			t.Errorf("it was known after %s", took)
		}
		_ = p.Close()
		wg.Wait()
	})
}

// TestOlderWorker shows that a worker which takes no calls is asked again after
// a while.
func TestOlderWorker(t *testing.T) {
	var asked atomic.Int32
	bubble(t, func(p *pipes) {
		server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/worker/calls" {
				asked.Add(1)
			}
			http.NotFound(w, r)
		})}
		_ = server.Serve(p)
		_ = server.Close()
	}, func(t *testing.T, f *direct.Fabric) {
		for want := range int32(3) {
			for range 3 {
				_, sent, err := f.Send(t.Context(), someone, &fabric.Message{Method: "POST", URI: "/x"})
				if sent || err != nil {
					t.Fatalf("sent: %v, %v", sent, err)
				}
			}
			if got := asked.Load(); got != want+1 {
				t.Errorf("asked %d times, want %d", got, want+1)
			}
			time.Sleep(2 * time.Minute)
		}
	})
}

// TestStrangeWorker shows that nothing that a worker sends harms more than its own calls.
func TestStrangeWorker(t *testing.T) {
	for name, says := range map[string]string{
		"text":                "SSH-2.0-OpenSSH_9.6\r\nHello there",
		"nothing":             "",
		"a request":           string(written(1, 1, "")),
		"an endless answer":   "\xff\xff\xff\xff\x03" + strings.Repeat("\x00", 8),
		"a large answer, cut": "\x01\x00\x00\x00\x03" + strings.Repeat("\x00", 7) + "\x01\x00\xc8..",
		"half a header":       "\x00\x00\x00",
		"no status":           string(written(3, 1, "\x00\x01")),
		"no room for one":     string(written(3, 1, "\x00")),
		"broken":              string(written(4, 1, "")),
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
	t.Run("answers to others", func(t *testing.T) {
		bubble(t, upgraded(func(c net.Conn, r *bufio.Reader) {
			_, number, _ := next(r)
			for _, n := range []uint64{0, number + 1, number, number} {
				_, _ = c.Write(written(3, n, "\x00\xc8ok"))
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

// TestStrangeCaller shows that wrong input of a caller ends its own connection,
// and harms no other.
func TestStrangeCaller(t *testing.T) {
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	ln, _ := serve(t, direct.Handler("w1", ok), nil)
	f := direct.New(nil)
	t.Cleanup(f.Close)
	for name, says := range map[string]string{
		"text":          "GET / HTTP/1.1\r\nHost: w1\r\n\r\n",
		"an answer":     string(written(3, 1, "\x00\xc8ok")),
		"a pong":        string(written(6, 0, "")),
		"no message":    string(written(1, 1, "\xff\xff")),
		"a large ping":  string(written(5, 0, "hello, how are you?")),
		"half a frame":  string(written(1, 1, "\x04POST\x02/x{}")[:15]),
		"a large claim": "\x7f\x00\x00\x00\x01" + strings.Repeat("\x00", 8),
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
			t.Errorf("%s: its connection is kept", name)
		}
		c.Close()
		if _, err := fabrictest.Send(t.Context(), f, member("w1", ln), "{}"); err != nil {
			t.Errorf("%s: another call: %v", name, err)
		}
	}
}

// TestStrangeUpgrade shows what a server may answer to the request for a
// connection of calls.
func TestStrangeUpgrade(t *testing.T) {
	for name, c := range map[string]struct {
		says string
		sent bool
		code bourse.Code
	}{
		"another protocol": {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", false, ""},
		"an endless one":   {"HTTP/1.1 101 Switching Protocols\r\n" + strings.Repeat("X: y\r\n", 20_000), false, ""},
		"upgrade required": {"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n", false, ""},
		"no HTTP":          {"220 ready\r\n", false, ""},
		"nothing":          {"", false, ""},
		"another worker":   {"HTTP/1.1 421 Misdirected Request\r\nContent-Length: 0\r\n\r\n", false, bourse.CodeUnavailable},
		"it is closing":    {"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", false, bourse.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(p *pipes) {
				for conn, err := p.Accept(); err == nil; conn, err = p.Accept() {
					_, _ = http.ReadRequest(bufio.NewReader(conn))
					_, _ = io.WriteString(conn, c.says)
					conn.Close()
				}
			}, func(t *testing.T, f *direct.Fabric) {
				_, sent, err := f.Send(t.Context(), someone, &fabric.Message{Method: "POST", URI: "/x"})
				if sent || (err == nil) != (c.code == "") || err != nil && bourse.CodeOf(err) != c.code {
					t.Errorf("sent: %v, %v", sent, err)
				}
			})
		})
	}
}
