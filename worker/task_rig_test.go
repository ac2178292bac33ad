package worker

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/warm"
)

// program is what answers the payloads of a warm machine, with what it has
// seen.
type program struct {
	protocol bourse.TaskProtocol
	listener net.Listener
	calls    atomic.Int64 // payloads that arrived
	now      atomic.Int64 // of them at this moment
	most     atomic.Int64 // at once, ever

	arrived, left chan struct{} // one for each payload, as it comes and when it is done with

	mu   sync.Mutex
	seen map[bourse.OrderID]int // guarded by mu
}

// newProgram serves calls with h; nil: it answers "answer".
func newProgram(t testing.TB, h http.HandlerFunc) *program {
	t.Helper()
	return newProgramOf(t, bourse.TaskHTTP, h)
}

// newProgramOf is newProgram in a protocol. Over frames a handler has the
// request and the reply of HTTP all the same, but no connection to break.
func newProgramOf(t testing.TB, protocol bourse.TaskProtocol, h http.HandlerFunc) *program {
	t.Helper()
	p := &program{protocol: protocol, seen: map[bourse.OrderID]int{}, arrived: make(chan struct{}, 1<<12), left: make(chan struct{}, 1<<12)}
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
	p.listener = s.Listener
	t.Cleanup(s.Close)
	return p
}

func (p *program) serveFrames(t testing.TB, h http.HandlerFunc) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.listener = ln
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
				if err := recover(); err != nil && err != http.ErrAbortHandler { //nolint:errorlint // it is the one that is panicked with
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

// arrive notes that a payload has arrived; what it gives, that it is done with.
func (p *program) arrive(order string) func() {
	p.calls.Add(1)
	now := p.now.Add(1)
	p.mu.Lock()
	p.most.Store(max(p.most.Load(), now))
	p.seen[bourse.OrderID(order)]++
	p.mu.Unlock()
	p.arrived <- struct{}{}
	return func() {
		p.now.Add(-1)
		p.left <- struct{}{}
	}
}

func (p *program) port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// times tells how often an order's payload has arrived.
func (p *program) times(id bourse.OrderID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[id]
}

// warmed makes an order's machine warm for a task that p answers.
func (p *program) warmed(name string, places int) func(*bourse.Order) {
	return func(o *bourse.Order) {
		o.Config.Task = &bourse.TaskConfig{Name: name, Concurrency: places, Port: p.port(), Protocol: p.protocol}
	}
}

// call makes an order for a place on a warm machine, and its slots.
func call(t testing.TB, name string, slots int64, change ...func(*bourse.Order)) *bourse.Order {
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

func within(d time.Duration) func(*bourse.Order) {
	return func(o *bourse.Order) { o.Task.Timeout = bourse.Duration(d) }
}

// result claims an order for work and fails the test unless it is filled.
func (h *host) result(ctx context.Context, o *bourse.Order) *bourse.TaskResult {
	h.t.Helper()
	fill, refusal, err := h.claim(ctx, &bourse.Claim{Order: *o})
	if err != nil || refusal != nil || fill.Task == nil {
		h.t.Fatalf("claim: %+v, refusal %+v, error %v", fill, refusal, err)
	}
	return fill.Task
}

// slots gives how many are committed, after all that is on its way.
func (h *host) slots() int64 {
	h.t.Helper()
	if err := h.store.Sync(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	var n int64
	if err := h.store.View(func(tx *store.Tx) error {
		committed, err := tx.Committed()
		n = committed.Of("slots")
		return err
	}); err != nil {
		h.t.Fatal(err)
	}
	return n
}

// openTasks gives the orders whose tasks are recorded as under way.
func (h *host) openTasks() []bourse.OrderID {
	h.t.Helper()
	var out []bourse.OrderID
	if err := h.store.View(func(tx *store.Tx) error {
		for o, err := range tx.OpenTasks() {
			if err != nil {
				return err
			}
			out = append(out, o.ID)
		}
		return nil
	}); err != nil {
		h.t.Fatal(err)
	}
	return out
}

func ended(r *bourse.TaskResult) string {
	return string(r.End) + " " + strconv.Itoa(r.ExitCode) + " " + string(r.Answer)
}
