// Package taskstest provides programs for warm machines that answer payloads, and orders for warm tasks.
package taskstest

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/worker/warm"
)

// Program is a fake of the program that runs in a warm machine. It answers payloads and
// records which payloads have arrived.
type Program struct {
	Protocol bourse.TaskProtocol
	Listener net.Listener
	Calls    atomic.Int64 // number of payloads that have arrived
	now      atomic.Int64 // number of payloads in progress
	Most     atomic.Int64 // highest number of payloads in progress at the same time

	Arrived, Left chan struct{} // receive a value when a payload arrives, and when the program has answered it

	mu   sync.Mutex
	seen map[bourse.OrderID]int // guarded by mu; how many times each order's payload has arrived
}

// NewProgram returns a program that serves calls over HTTP with the handler h. If h is
// nil, each answer is the text "answer".
func NewProgram(t testing.TB, h http.HandlerFunc) *Program {
	t.Helper()
	return NewProgramOf(t, bourse.TaskHTTP, h)
}

// NewProgramOf is like NewProgram, but serves calls over the given protocol. With frames, h gets the same request and
// response as with HTTP, but cannot hijack the connection.
func NewProgramOf(t testing.TB, protocol bourse.TaskProtocol, h http.HandlerFunc) *Program {
	t.Helper()
	p := &Program{Protocol: protocol, seen: map[bourse.OrderID]int{}, Arrived: make(chan struct{}, 1<<12), Left: make(chan struct{}, 1<<12)}
	if h == nil {
		h = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("answer")) }
	}
	if protocol == bourse.TaskFrames {
		p.serveFrames(t, h)
		return p
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer p.arrive(r.Header.Get("Bourse-Order-Id"))()
		h(w, r)
	}))
	p.Listener = s.Listener
	t.Cleanup(s.Close)
	return p
}

func (p *Program) serveFrames(t testing.TB, h http.HandlerFunc) {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.Listener = ln
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- warm.Serve(ctx, ln, 0, func(ctx context.Context, c *warm.Call) (a warm.Answer) {
			defer p.arrive(c.Order)()
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(c.Payload))
			r.Header.Set("Content-Type", c.Type)
			r.Header.Set("Bourse-Deadline", c.Deadline.Format(time.RFC3339Nano))
			w := httptest.NewRecorder()
			r.Header.Set("Bourse-Order-Id", c.Order)
			defer func() {
				if err := recover(); err != nil && err != http.ErrAbortHandler { //nolint:errorlint // handlers panic with this exact value
					panic(err)
				} else if err != nil {
					a = warm.Answer{Status: http.StatusInternalServerError}
				}
			}()
			h(w, r)
			return warm.Answer{Status: w.Code, Type: w.Header().Get("Content-Type"), Body: w.Body.Bytes()}
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// arrive records that a payload has arrived. The returned function records that the program has answered it.
func (p *Program) arrive(order string) func() {
	p.Calls.Add(1)
	now := p.now.Add(1)
	p.mu.Lock()
	p.Most.Store(max(p.Most.Load(), now))
	p.seen[bourse.OrderID(order)]++
	p.mu.Unlock()
	p.Arrived <- struct{}{}
	return func() {
		p.now.Add(-1)
		p.Left <- struct{}{}
	}
}

// Port returns the port on which the program listens.
func (p *Program) Port() int { return p.Listener.Addr().(*net.TCPAddr).Port }

// Times returns how many times an order's payload has arrived.
func (p *Program) Times(id bourse.OrderID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[id]
}

// Warmed returns a function that changes an order so that the order's machine is warm for the named task, and p serves
// the calls.
func (p *Program) Warmed(name string, places int) func(*bourse.Order) {
	return func(o *bourse.Order) {
		o.Config.Task = &bourse.TaskConfig{Name: name, Concurrency: places, Port: p.Port(), Protocol: p.Protocol}
	}
}

// Call returns an order for a warm task that takes the given number of slots.
func Call(t testing.TB, name string, slots int64, change ...func(*bourse.Order)) *bourse.Order {
	t.Helper()
	o := &bourse.Order{
		ID: bourse.NewOrderID(), App: bourse.App{Name: "web", ID: "01", Org: "personal", CreatedAt: time.Unix(1, 0).UTC()},
		Regions: []bourse.Choice{{"gru"}},
		Task:    &bourse.TaskOrder{Name: name, Payload: []byte("payload"), Timeout: bourse.Duration(10 * time.Second)},
	}
	if slots > 0 {
		o.Config.Requirements = bourse.Requirements{"slots": {Count: slots}}
	}
	for _, f := range change {
		f(o)
	}
	if err := o.Validate(); err != nil {
		t.Fatalf("order: %v", err)
	}
	return o
}

// Within returns a function that sets the timeout of an order's task.
func Within(d time.Duration) func(*bourse.Order) {
	return func(o *bourse.Order) { o.Task.Timeout = bourse.Duration(d) }
}
