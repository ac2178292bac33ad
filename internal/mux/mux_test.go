package mux

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testTimeout = time.Minute
	stallTime   = 5 * time.Second
)

func readFull(r io.Reader, p []byte) error {
	_, err := io.ReadFull(r, p)
	return err
}

var errTestEnds = errors.New("the test ends")

// connect returns a Conn that is closed when the test ends.
func connect(t testing.TB, conn net.Conn, config Config) *Conn {
	config.Limits = testLimits
	p := NewPipe(conn)
	c := NewConn(p, p, config)
	go c.Run()
	t.Cleanup(c.Close)
	return c
}

// serving returns a server that is closed when the test ends.
func serving(t testing.TB, config ServerConfig) *Server {
	config.Limits = testLimits
	s := NewServer(config)
	t.Cleanup(func() { end(s) })
	return s
}

// end closes a server unless it is already closed.
func end(s *Server) {
	s.Abort()
	select {
	case <-s.gone:
	default:
		s.Close(errTestEnds)
	}
}

// both returns a caller that is connected to a server over TCP.
func both(t testing.TB, config ServerConfig, h Handler) (*Conn, *Server) {
	near, far := loopback(t)
	s := serving(t, config)
	s.Serve(t.Context(), far, far, h)
	return connect(t, near, Config{}), s
}

func echo(_ context.Context, c *Call) Answer {
	return Answer{Status: 200, Type: c.Type, Body: c.Payload}
}

// A handler receives the whole call, and the caller the whole answer.
func TestCall(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	deadline := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	c, _ := both(t, ServerConfig{}, func(ctx context.Context, c *Call) Answer {
		if !c.Deadline.IsZero() && !c.Deadline.Equal(deadline) || ctx.Err() != nil {
			t.Errorf("got deadline %s and context error %v, want deadline %s or none", c.Deadline, ctx.Err(), deadline)
		}
		switch c.Subject {
		case "no-status":
			return Answer{Body: []byte("x")}
		case "too-much":
			return Answer{Status: 200, Body: append(c.Payload, 'x')}
		case "a-line":
			return Answer{Status: 200, Type: "a\nb"}
		}
		return Answer{Status: 404, Type: c.Type, Body: append([]byte(c.Subject), c.Payload...)}
	})
	for name, x := range map[string]struct {
		call Call
		want string // the answer; "" if there is none
	}{
		"usual":        {Call{Subject: "o", Deadline: deadline, Type: "text/plain; charset=utf-8", Payload: []byte("hi")}, "ohi"},
		"nothing":      {Call{Subject: "o"}, "o"},
		"large":        {Call{Subject: "o", Payload: large[1:]}, "o" + string(large[1:])},
		"no status":    {Call{Subject: "no-status"}, ""},
		"too much":     {Call{Subject: "too-much", Payload: large}, ""},
		"a wrong type": {Call{Subject: "a-line"}, ""},
	} {
		a, err := c.Call(t.Context(), &x.call)
		if (err == nil) != (x.want != "") || string(a.Body) != x.want || err == nil && (a.Type != x.call.Type || a.Status != 404) {
			t.Errorf("%s: got status %d, type %s, %d bytes and error %v", name, a.Status, a.Type, len(a.Body), err)
		}
	}
	for name, call := range map[string]Call{
		"no subject": {}, "a newline in it": {Subject: "o\n"}, "a newline in the type": {Subject: "o", Type: "a\nb"}, "too large": {Subject: "o", Payload: append(large, 'x')},
	} {
		if _, err := c.Call(t.Context(), &call); !errors.As(err, new(NotSent)) {
			t.Errorf("%s: got %v, want a NotSent error", name, err)
		}
	}
}

// model records the outcome of calls at both ends.
type model struct {
	mu    sync.Mutex
	times map[string]int  // number of times that a handler was called, by the call's subject
	done  map[string]bool // whether a handler answered, by the call's subject
	ends  map[string]int  // number of calls by their result
}

// handle answers most calls, some of them possibly after their callers have left. It aborts the
// other calls.
func (m *model) handle(ctx context.Context, c *Call) Answer {
	m.mu.Lock()
	m.times[c.Subject]++
	n := len(m.times)
	m.mu.Unlock()
	switch {
	case n%17 == 0:
		return Answer{}
	case n%3 == 0:
		select {
		case <-ctx.Done():
			return Answer{Status: 500}
		case <-time.After(time.Duration(n%5) * time.Millisecond):
		}
	}
	m.mu.Lock()
	m.done[c.Subject] = true
	m.mu.Unlock()
	return Answer{Status: 200, Body: append([]byte(c.Subject+" "), c.Payload...)}
}

// check compares a caller's result with the handler's.
func (m *model) check(t *testing.T, q *Call, a Answer, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	times, done := m.times[q.Subject], m.done[q.Subject]
	_, unsent := errors.AsType[NotSent](err)
	end := "broken"
	switch {
	case err == nil && a.Status == 503:
		end = "refused"
	case err == nil:
		end = "answered"
	case unsent:
		end = "not sent"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		end = "abandoned"
	case errors.Is(err, errLost):
		end = "lost"
	}
	m.ends[end]++
	switch {
	case times > 1:
		t.Errorf("%s was handled %d times", q.Subject, times)
	case (unsent || end == "refused") && times > 0:
		t.Errorf("%s was handled, although the caller got %v", q.Subject, err)
	case end == "answered" && (!done || string(a.Body) != q.Subject+" "+string(q.Payload)):
		t.Errorf("%s was answered with %.40q, done: %v", q.Subject, a.Body, done)
	}
}

// Many callers with payloads of all sizes, some of which leave or run out of time, use
// several connections of a server that has too few handlers. The server drains or aborts,
// or a connection breaks. Each caller's result agrees with the handler's, and no goroutine
// remains.
func TestManyCalls(t *testing.T) {
	all := map[string]int{}
	for name, finish := range map[string]func(*Server, *Conn){
		"drained": func(s *Server, _ *Conn) { s.Close(errTestEnds) },
		"aborted": func(s *Server, _ *Conn) { s.Abort() },
		"closed":  func(_ *Server, c *Conn) { c.Close() },
		"left":    func(_ *Server, c *Conn) { c.Leave() },
	} {
		t.Run(name, func(t *testing.T) { chaos(t, finish, all) })
	}
	t.Log(all)
	for _, end := range []string{"answered", "refused", "abandoned", "lost", "not sent"} {
		if all[end] == 0 {
			t.Errorf("no call was %s", end)
		}
	}
}

func chaos(t *testing.T, finish func(*Server, *Conn), all map[string]int) {
	const conns, callers, each = 3, 12, 100
	m := &model{times: map[string]int{}, done: map[string]bool{}, ends: map[string]int{}}
	s := NewServer(ServerConfig{
		Limits: testLimits, Concurrency: 8, Queue: 8, IdleTimeout: time.Minute, WriteTimeout: time.Minute,
		Refuse: func(error) Answer { return Answer{Status: 503} },
	})
	var group, runs sync.WaitGroup
	var made atomic.Int32
	halfway := make(chan struct{})
	first := make(chan *Conn, 1)
	for n := range conns {
		near, far := loopback(t)
		s.Serve(t.Context(), far, far, m.handle)
		p := NewPipe(near)
		c := NewConn(p, p, Config{Limits: testLimits, Idle: time.Minute, Ping: time.Millisecond, Pong: time.Minute})
		runs.Go(c.Run)
		if n == 0 {
			first <- c
		}
		for k := range callers {
			rng := rand.New(rand.NewPCG(uint64(n), uint64(k)))
			group.Go(func() {
				for i := range each {
					q := Call{Subject: fmt.Sprintf("%d/%d/%d", n, k, i), Payload: make([]byte, rng.IntN(1<<rng.IntN(17)))}
					ctx, leave := context.WithCancel(t.Context())
					if rng.IntN(3) == 0 {
						time.AfterFunc(time.Duration(rng.IntN(2000))*time.Microsecond, leave)
					} else if rng.IntN(3) == 0 {
						q.Deadline = time.Now().Add(time.Duration(rng.IntN(2000)) * time.Microsecond)
					}
					a, err := c.Call(ctx, &q)
					leave()
					m.check(t, &q, a, err)
					if made.Add(1) == conns*callers*each/2 {
						close(halfway)
					}
				}
			})
		}
		defer func() {
			c.Close()
			if len(c.waiting) > 0 {
				t.Errorf("got %d waiting calls after Close, want 0", len(c.waiting))
			}
		}()
	}
	<-halfway
	c := <-first
	finish(s, c)
	group.Wait()
	c.Close()
	end(s)
	if len(s.open)+len(s.queue)+s.running > 0 {
		t.Errorf("after Close, the server still has %d connections, %d calls and %d queued calls", len(s.open), s.running, len(s.queue))
	}
	for what, n := range m.ends {
		all[what] += n
	}
	defer runs.Wait()
}

// Invalid data from a server affects only the calls on its connection.
func TestServersSendingInvalidData(t *testing.T) {
	for name, text := range map[string]string{
		"text":              "SSH-2.0-OpenSSH_9.6\r\nHello there\n",
		"nothing":           "",
		"a call":            "CALL 1 o 0 0 -\n",
		"a ping":            "PING\n",
		"an endless answer": "DONE 1 200 9223372036854775807 -\n",
		"half an answer":    "DONE 1 200 5 -\nab",
		"half a line":       "DONE 1 2",
		"an endless line":   strings.Repeat("D", 1000),
		"an unknown id":     "DONE 2 200 0 -\n",
		"broken off":        "LOST 1\n",
	} {
		t.Run(name, func(t *testing.T) {
			near, far := loopback(t)
			c := connect(t, near, Config{})
			go func() {
				_, _ = bufio.NewReader(far).ReadString('\n')
				_, _ = io.WriteString(far, text)
				if !strings.Contains(name, "endless") {
					_ = far.(*net.TCPConn).CloseWrite()
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			_, err := c.Call(ctx, &Call{Subject: "o"})
			if err == nil || errors.As(err, new(NotSent)) || ctx.Err() != nil {
				t.Errorf("got error %v, want one that the broken connection caused", err)
			}
		})
	}
	t.Run("an answer again", func(t *testing.T) {
		near, far := loopback(t)
		c := connect(t, near, Config{})
		go func() {
			_, _ = bufio.NewReader(far).ReadString('\n')
			_, _ = io.WriteString(far, "PONG\nDONE 1 200 2 -\nokDONE 1 200 5 -\nagainLOST 1\n")
		}()
		if a, err := c.Call(t.Context(), &Call{Subject: "o"}); err != nil || string(a.Body) != "ok" {
			t.Errorf("got %q, %v", a.Body, err)
		}
	})
}

// An invalid frame, or one that repeats a call in progress, ends the connection and the
// contexts of its handlers.
func TestCallersSendingInvalidData(t *testing.T) {
	for name, text := range map[string]string{
		"HTTP":              "POST / HTTP/1.1\r\n\r\n",
		"an id again":       "CALL 1 o 1 0 -\n",
		"too large":         "CALL 2 o 1 1048577 -\n",
		"an answer":         "DONE 1 200 0 -\n",
		"a pong":            "PONG\n",
		"an endless line":   strings.Repeat("C", 1000),
		"nothing more":      "",
		"half a line":       "CALL 2 o",
		"half a payload":    "CALL 2 o 1 5 -\nab",
		"an odd cancel":     "CANCEL one\n",
		"one call too many": "CALL 2 o 1 0 -\nCALL 3 o 1 0 -\n",
	} {
		t.Run(name, func(t *testing.T) {
			near, far := loopback(t)
			ended := make(chan error, 1)
			serving(t, ServerConfig{Concurrency: 1, Queue: 1}).Serve(t.Context(), far, far, func(ctx context.Context, _ *Call) Answer {
				<-ctx.Done()
				ended <- context.Cause(ctx)
				return Answer{Status: 200}
			})
			if _, err := io.WriteString(near, "CANCEL 7\nPING\nCALL 1 o 1 0 -\n"+text); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(name, "endless") {
				_ = near.(*net.TCPConn).CloseWrite()
			}
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the handler's context: got error %v, want context.Canceled", err)
			}
			if said, _ := io.ReadAll(near); !strings.HasPrefix("PONG\n", string(said)) { // an error means that the connection was reset
				t.Errorf("the server sent %q, want nothing but PONG", said)
			}
		})
	}
}

// If a server does not read, calls end with their contexts and deadlines, the waiting data is limited, and the stall
// timeout ends the connection.
func TestServerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		c := connect(t, near, Config{Stall: stallTime})
		var group sync.WaitGroup
		for n := range 32 {
			group.Go(func() {
				began := time.Now()
				call := Call{Subject: "o", Payload: make([]byte, 1<<20)}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if n%2 == 0 {
					ctx, call.Deadline = t.Context(), began.Add(time.Second)
				}
				if _, err := c.Call(ctx, &call); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
					t.Errorf("call %d ended with %v after %s", n, err, time.Since(began))
				}
			})
		}
		group.Wait()
		c.w.mu.Lock()
		c.w.pipe.mu.Lock()
		if n := len(c.w.next) + len(c.w.pipe.rest); n > 2*maxBacklog+1<<20 {
			t.Errorf("got %d waiting bytes, more than the limit", n)
		}
		c.w.pipe.mu.Unlock()
		c.w.mu.Unlock()
		began := time.Now()
		if _, err := c.Call(t.Context(), &Call{Subject: "last"}); !errors.As(err, new(NotSent)) || time.Since(began) > stallTime {
			t.Errorf("the last call ended with %v after %s", err, time.Since(began))
		}
	})
}

// If a caller does not read, the answers that wait for it are limited, other callers do not wait, and the server can be
// closed.
func TestCallerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serving(t, ServerConfig{WriteTimeout: stallTime})
		near, far := net.Pipe()
		var answered atomic.Int32
		s.Serve(t.Context(), far, far, func(context.Context, *Call) Answer {
			answered.Add(1)
			return Answer{Status: 200, Body: make([]byte, 1<<20)}
		})
		p := s.all()[0]
		began := time.Now()
		for n := range 16 {
			_, _ = fmt.Fprintf(near, "CALL %d o 0 0 -\n", n+1)
		}
		synctest.Wait()
		if len(p.w.next) > 2<<20 || answered.Load() != 16 {
			t.Errorf("got %d waiting bytes after %d answers, want at most 2 MiB after 16", len(p.w.next), answered.Load())
		}
		other, theirs := net.Pipe()
		s.Serve(t.Context(), theirs, theirs, echo)
		if a, err := connect(t, other, Config{}).Call(t.Context(), &Call{Subject: "o", Payload: []byte("x")}); err != nil || string(a.Body) != "x" {
			t.Errorf("another caller got %q, %v", a.Body, err)
		}
		s.Close(errTestEnds)
		if took := time.Since(began); took > 3*stallTime {
			t.Errorf("Close took %s, want at most %s", took, 3*stallTime)
		}
	})
}

// A connection is closed if it is idle, if the other end does not respond, or if it sends
// half a frame. A long call does not close it.
func TestClosing(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		reply  string
		took   time.Duration // time until the call must end
		want   string        // text in the call's error
		closed time.Duration // maximum time until the connection is closed
	}{
		"unused":      {Config{Idle: time.Second}, "DONE 1 200 0 -\n", 0, "", 2 * time.Second},
		"half a line": {Config{Rest: 10 * time.Second}, "DONE 1 2", 10 * time.Second, "timeout", 10 * time.Second},
		"half a body": {Config{Rest: 10 * time.Second}, "DONE 1 200 5 -\nab", 10 * time.Second, "timeout", 10 * time.Second},
		"silent":      {Config{Ping: 5 * time.Second, Pong: 3 * time.Second}, "", 8 * time.Second, "does not respond", 8 * time.Second},
		"a long call": {Config{Idle: time.Second}, "", time.Minute, "deadline", time.Minute + 2*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				go func() {
					r := bufio.NewReader(far)
					_, _ = r.ReadString('\n')
					_, _ = io.WriteString(far, c.reply)
					_, _ = io.Copy(io.Discard, r) // until the connection is closed
					_ = far.Close()
				}()
				began := time.Now()
				conn := connect(t, near, c.config)
				_, err := conn.Call(t.Context(), &Call{Subject: "o", Deadline: began.Add(time.Minute)})
				if took := time.Since(began); took != c.took || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("the call ended with %v after %s, want %q after %s", err, took, c.want, c.took)
				}
				<-conn.Done()
				if took := time.Since(began); took > c.closed {
					t.Errorf("closed after %s, want %s", took, c.closed)
				}
			})
		})
	}
}

// Pings keep a connection open. A server closes a connection without them.
func TestPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		s := serving(t, ServerConfig{IdleTimeout: 30 * time.Second})
		s.Serve(t.Context(), far, far, func(ctx context.Context, _ *Call) Answer {
			select {
			case <-ctx.Done():
			case <-time.After(time.Hour):
			}
			return Answer{Status: 200}
		})
		c := connect(t, near, Config{Ping: 5 * time.Second, Pong: 3 * time.Second})
		if _, err := c.Call(t.Context(), &Call{Subject: "o"}); err != nil {
			t.Errorf("a call of an hour: %v", err)
		}
		silent, far := net.Pipe()
		s.Serve(t.Context(), far, far, echo)
		began := time.Now()
		_, _ = io.ReadAll(silent)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("a silent caller was disconnected after %s", took)
		}
	})
}

// The number of concurrent handlers is limited. Other calls wait, and a waiting call that
// is abandoned does not begin.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		arrived, release := make(chan string, 10), make(chan struct{})
		var now atomic.Int32
		serving(t, ServerConfig{Concurrency: 2, Queue: 10}).Serve(t.Context(), far, far, func(_ context.Context, c *Call) Answer {
			if now.Add(1) > 2 {
				t.Error("too many handlers at once")
			}
			defer now.Add(-1)
			arrived <- c.Subject
			<-release
			return Answer{Status: 200}
		})
		c := connect(t, near, Config{})
		var group sync.WaitGroup
		call := func(subject string) {
			group.Go(func() {
				if _, err := c.Call(t.Context(), &Call{Subject: subject}); err != nil {
					t.Errorf("%s: %v", subject, err)
				}
			})
		}
		call("first")
		call("second")
		<-arrived
		<-arrived
		if _, err := c.Call(t.Context(), &Call{Subject: "abandoned", Deadline: time.Now().Add(time.Second)}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the abandoned call: got %v, want context.DeadlineExceeded", err)
		}
		call("third")
		synctest.Wait()
		release <- struct{}{}
		if got := <-arrived; got != "third" {
			t.Errorf("got call %s, want third", got)
		}
		close(release)
		group.Wait()
	})
}

// After Drain, a call in progress is answered and others are refused. Close cancels the
// calls that do not end.
func TestDrain(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	cause := make(chan error, 1)
	c, s := both(t, ServerConfig{Refuse: func(error) Answer { return Answer{Status: 503} }}, func(ctx context.Context, c *Call) Answer {
		arrived <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
			cause <- context.Cause(ctx)
		}
		return Answer{Status: 200, Body: c.Payload}
	})
	ends := make(chan string, 2)
	for _, name := range []string{"first", "second"} {
		go func() {
			a, err := c.Call(t.Context(), &Call{Subject: name, Payload: []byte(name)})
			ends <- fmt.Sprintf("%s%v", a.Body, errors.Is(err, errLost))
		}()
		<-arrived
	}
	s.Drain()
	if a, err := c.Call(t.Context(), &Call{Subject: "third"}); err != nil || a.Status != 503 {
		t.Errorf("a call after Drain: got status %d, %v; want 503", a.Status, err)
	}
	release <- struct{}{}
	if got := <-ends; got != "firstfalse" && got != "secondfalse" {
		t.Errorf("the call in progress: %s", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if s.Wait(ctx) {
		t.Error("the second call has ended")
	}
	s.Close(errTestEnds)
	if got := <-ends; got != "true" {
		t.Errorf("the canceled call: %s", got)
	}
	if err := <-cause; !errors.Is(err, errTestEnds) {
		t.Errorf("the call was canceled with cause %v", err)
	}
	<-c.Done()
	if _, err := c.Call(t.Context(), &Call{Subject: "o"}); !errors.Is(err, ErrEnded) || !errors.As(err, new(NotSent)) {
		t.Errorf("a call after the end: got %v, want ErrEnded and NotSent", err)
	}
}

// memory is a connection whose input is in memory and whose output is discarded.
type memory struct {
	net.Conn
	io.Reader
	closed chan struct{} // receives a value when the connection is closed; buffered
}

func newMemory(b []byte) memory {
	return memory{Reader: bytes.NewReader(b), closed: make(chan struct{}, 1)}
}

func (m memory) Read(p []byte) (int, error)     { return m.Reader.Read(p) }
func (memory) Write(p []byte) (int, error)      { return len(p), nil }
func (memory) SetWriteDeadline(time.Time) error { return nil }

func (m memory) Close() error {
	select {
	case m.closed <- struct{}{}:
	default:
	}
	return nil
}

// Whatever a server sends, each call ends once.
func FuzzServer(f *testing.F) {
	f.Add([]byte("DONE 1 200 2 -\nok"))
	f.Add([]byte("PONG\nDONE 1 200 2 -\nokDONE 1 200 2 -\nokLOST 2\nPONG\n"))
	f.Add([]byte("DONE 2 200 1048576 -\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := NewPipe(newMemory(b))
		c := NewConn(p, p, Config{Limits: testLimits})
		var waiters [2]*waiter
		for i := range waiters {
			waiters[i] = newWaiter().(*waiter)
			id, err := c.enter(waiters[i])
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.send(t.Context(), waiters[i], id, &Call{Subject: "o"}); err != nil {
				t.Fatal(err)
			}
		}
		c.Run()
		for i, w := range waiters {
			if len(w.done) != 1 {
				t.Errorf("call %d did not end", i+1)
			}
		}
	})
}

// Whatever a caller sends, every call that is served ends.
func FuzzCaller(f *testing.F) {
	f.Add([]byte("CALL 1 o 0 2 -\nhi"))
	f.Add([]byte("CALL 1 o 0 2 -\nhiCANCEL 1\nPING\nCALL 1 o 0 0 -\nCALL 2 o 0 0 -\n"))
	f.Add([]byte("CALL 2 o 0 1048576 -\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := NewServer(ServerConfig{Limits: testLimits, Concurrency: 2, Queue: 2})
		conn := newMemory(b)
		s.Serve(t.Context(), conn, conn, echo)
		<-conn.closed // until all input was read
		s.Close(errTestEnds)
		if s.running+len(s.queue) > 0 {
			t.Errorf("got %d calls in progress and %d queued at the end, want none", s.running, len(s.queue))
		}
	})
}
