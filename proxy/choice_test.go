package proxy_test

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy"
	"github.com/bourse-dev/bourse/proxy/balance"
	"github.com/bourse-dev/bourse/proxy/route"
)

// balanced is a proxy.Balance that uses a real balancer.
type balanced struct{ *balance.Balancer }

// Acquire implements proxy.Balance.
func (b balanced) Acquire(ctx context.Context, t *route.Target, w proxy.Criteria) (proxy.Slot, error) {
	turn, err := b.Balancer.Acquire(ctx, t, w)
	if err != nil {
		return nil, err
	}
	return turn, nil
}

// named returns a world with one machine in each of the given regions. The machines are numbered
// from 1 and reply with their numbers.
func named(t *testing.T, regions ...bourse.Region) *world {
	var all []http.Handler
	for i := range regions {
		all = append(all, handle(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Missed", r.Header.Get("Fly-Preferred-Instance-Unavailable"))
			_, _ = io.WriteString(w, string(rune('1'+i)))
		}))
	}
	w := newWorld(t, all...)
	for i, r := range regions {
		w.target.Backends[i].Region = r
		w.target.Backends[i].Service.Concurrency.Soft = 20
	}
	w.config.Balance = balanced{balance.New(balance.Config{Region: "gru"})}
	return w
}

// TestClientChooses checks the headers that clients use to select a machine or region.
func TestClientChooses(t *testing.T) {
	const two, three, gone = "00000a00000002", "00000a00000003", "00000a00000009"
	w := named(t, "gru", "mad", "ams").start(proxy.Listener{})
	w.target.Backends[2].Cordoned = true
	for name, c := range map[string]struct {
		header, value string
		status        int
		by, missed    string
	}{
		"no header":                               {"X", "", 200, "1", ""},
		"a region":                                {"Fly-Prefer-Region", "mad", 200, "2", ""},
		"an alias of several regions":             {"Fly-Prefer-Region", "nowhere,eu", 200, "2", ""},
		"a region without machines":               {"Fly-Prefer-Region", "nrt", 200, "1", ""},
		"a forced region":                         {"Fly-Force-Region", "MAD", 200, "2", ""},
		"forced regions in a quoted string":       {"Fly-Force-Region", `"nrt,mad"`, 200, "2", ""},
		"a forced region without machines":        {"Fly-Force-Region", "nrt", 503, "", ""},
		"a forced region with a cordoned machine": {"Fly-Force-Region", "ams", 503, "", ""},
		"a machine":                               {"Fly-Prefer-Instance-Id", two, 200, "2", ""},
		"a machine that is gone":                  {"Fly-Prefer-Instance-Id", gone, 200, "1", gone},
		"a cordoned machine":                      {"Fly-Prefer-Instance-Id", three, 200, "1", three},
		"an invalid machine ID":                   {"Fly-Prefer-Instance-Id", "x\"y", 200, "1", ""},
		"a forced machine":                        {"Fly-Force-Instance-Id", two, 200, "2", ""},
		"a forced machine that is gone":           {"Fly-Force-Instance-Id", gone, 503, "", ""},
		"an invalid forced machine ID":            {"Fly-Force-Instance-Id", "x", 400, "", ""},
	} {
		r := w.request("GET", "/", nil)
		r.Header.Set(c.header, c.value)
		resp, by := w.do(r)
		if resp.StatusCode != c.status || c.status == 200 && (by != c.by || resp.Header.Get("X-Missed") != c.missed) {
			t.Errorf("%s: got status %d from machine %q, missed %q", name, resp.StatusCode, by, resp.Header.Get("X-Missed"))
		}
	}
}

// TestForced checks that, if a client forces a machine, the request is retried only on that machine.
func TestForced(t *testing.T) {
	w := named(t, "gru", "gru")
	id := w.target.Backends[1].Machine
	var n atomic.Int32
	w.use = func(context.Context, bourse.MachineID) error {
		if n.Add(1) < 3 {
			return bourse.Errorf(bourse.CodeUnavailable, "not yet")
		}
		return nil
	}
	w.start(proxy.Listener{})
	r := w.request("POST", "/", strings.NewReader("x"))
	r.Header.Set("Fly-Force-Instance-Id", string(id))
	if resp, by := w.do(r); resp.StatusCode != 200 || by != "2" || !slices.Equal(w.uses, []bourse.MachineID{id, id, id}) {
		t.Errorf("%d by %q: %v", resp.StatusCode, by, w.uses)
	}
}

// TestWorkerRestarts checks that requests wait for a worker whose daemon is restarted, but only for
// a limited time.
func TestWorkerRestarts(t *testing.T) {
	for _, back := range []bool{true, false} {
		w := named(t, "gru")
		var n atomic.Int32
		w.use = func(context.Context, bourse.MachineID) error {
			if n.Add(1) > 8 && back {
				return nil
			}
			return bourse.Errorf(bourse.CodeUnavailable, "worker w1 does not respond")
		}
		if w.config.Limits.WorkerOutage = time.Minute; !back {
			w.config.Limits.WorkerOutage = 100 * time.Millisecond
		}
		w.start(proxy.Listener{})
		want := map[bool]int{true: 200, false: 503}[back]
		if resp, text := w.do(w.request("POST", "/", strings.NewReader("x"))); resp.StatusCode != want {
			t.Errorf("%d %s", resp.StatusCode, text)
		}
	}
}

// TestEachWorkerHasTime checks that the time that a request spends on an unresponsive worker does not count against
// another worker whose daemon is restarting at the same time.
func TestEachWorkerHasTime(t *testing.T) {
	w := named(t, "gru", "gru")
	w.target.Backends[0].Worker, w.target.Backends[1].Worker = "w1", "w2"
	const outage = time.Second
	w.config.Limits.WorkerOutage = outage
	var mu sync.Mutex
	var lost bourse.MachineID // the first machine that is used
	uses := map[bourse.MachineID]int{}
	w.use = func(_ context.Context, id bourse.MachineID) error {
		mu.Lock()
		lost = cmp.Or(lost, id)
		uses[id]++
		gone, n := id == lost, uses[id]
		mu.Unlock()
		switch {
		case gone:
			<-time.After(outage + 10*time.Millisecond)
			return bourse.Errorf(bourse.CodeUnavailable, "the connection timed out")
		case n <= 2:
			return bourse.Errorf(bourse.CodeUnavailable, "connection refused")
		}
		return nil
	}
	w.start(proxy.Listener{})
	resp, text := w.do(w.request("GET", "/", nil))
	mu.Lock()
	defer mu.Unlock()
	if resp.StatusCode != http.StatusOK || uses[lost] != 1 {
		t.Errorf("%d %s, after %d attempts at the lost worker's machine, want 200 after 1", resp.StatusCode, text, uses[lost])
	}
}

// TestDialIsRetriedAfterWorkerOutage checks that a failed connection is retried regardless of how long the request has
// already waited for the machine's worker.
func TestDialIsRetriedAfterWorkerOutage(t *testing.T) {
	w := named(t, "gru")
	id := w.target.Backends[0].Machine
	good := w.upstreams[id]
	w.upstreams[id] = &upstream{w: w, addr: dead(t), done: make(chan struct{})}
	var n atomic.Int32
	w.use = func(context.Context, bourse.MachineID) error {
		switch n := n.Add(1); {
		case n <= 8:
			return bourse.Errorf(bourse.CodeUnavailable, "worker w1 does not respond")
		case n > 9: // dialing has failed
			w.mu.Lock()
			defer w.mu.Unlock()
			w.upstreams[id] = good
		}
		return nil
	}
	w.config.Limits.WorkerOutage = time.Minute
	w.start(proxy.Listener{})
	if resp, text := w.do(w.request("POST", "/", strings.NewReader("x"))); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
}

// TestWokenAgain checks that any request restarts a machine that was stopped while connections to
// it were kept open.
func TestWokenAgain(t *testing.T) {
	w := named(t, "gru")
	id := w.target.Backends[0].Machine
	good := w.upstreams[id]
	w.upstreams[id] = &upstream{w: w, addr: dead(t), done: make(chan struct{})}
	w.use = func(context.Context, bourse.MachineID) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.uses) > 1 { // dialing has failed, so the worker was asked again
			w.upstreams[id] = good
		}
		return nil
	}
	w.start(proxy.Listener{})
	if resp, text := w.do(w.request("POST", "/", strings.NewReader("x"))); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
}

// TestHardLimit checks that machines never have more requests than their hard limits, and that all requests are
// answered.
func TestHardLimit(t *testing.T) {
	const most, n = 3, 60
	var at, over atomic.Int32
	w := newWorld(t, handle(func(w http.ResponseWriter, _ *http.Request) {
		now := at.Add(1)
		defer at.Add(-1)
		if now > most {
			over.Store(now)
		}
		_ = http.NewResponseController(w).Flush()
	}))
	w.target.Backends[0].Service.Concurrency.Hard = most
	w.config.Balance = balanced{balance.New(balance.Config{Region: "gru"})}
	w.start(proxy.Listener{})
	w.crowd(n)
	if got := over.Load(); got > 0 {
		t.Errorf("%d at once", got)
	}
}

// crowd makes n concurrent requests, all of which must be answered. It does not use client connections, because the
// test host may not allow that many.
func (w *world) crowd(n int) {
	w.t.Helper()
	h := w.proxy.Handler(proxy.Listener{Port: 80})
	var all sync.WaitGroup
	for range n {
		r := httptest.NewRequestWithContext(w.t.Context(), "GET", "http://web.example/", nil)
		all.Go(func() {
			got := httptest.NewRecorder()
			h.ServeHTTP(got, r)
			if got.Code != http.StatusOK {
				w.t.Error(got.Code, got.Body)
			}
		})
	}
	all.Wait()
}

// TestWake checks that starting a stopped machine once is enough to answer any number of requests
// for it.
func TestWake(t *testing.T) {
	const n = 5000
	w := named(t, "gru")
	w.target.Port.HTTP.H2Backend = true // so that a few connections are enough for all requests
	w.target.Backends[0].State = bourse.StateStopped
	awake := make(chan struct{})
	w.use = func(ctx context.Context, _ bourse.MachineID) error {
		select {
		case <-awake:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	w.start(proxy.Listener{})
	go func() {
		defer close(awake)
		w.eventually("all wait", func() bool { return len(w.uses) == n })
	}()
	w.crowd(n)
	w.settled()
	if len(w.uses) != n {
		t.Errorf("%d uses", len(w.uses))
	}
}
