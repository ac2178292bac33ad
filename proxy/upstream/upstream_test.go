package upstream_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/fabrictest"
	"github.com/bourse-dev/bourse/proxy/upstream"
)

const machine = bourse.MachineID("148e21ea1d5389")

// worker is an in-memory worker with one machine.
type worker struct {
	mu    sync.Mutex
	asked []fabric.UseRequest
	reply fabric.UseReply
	err   error
	slow  time.Duration // delay before the worker answers a waiting call
	deaf  bool          // the worker does not answer
	dial  func() (net.Conn, error)
}

func newWorker() *worker {
	return &worker{
		reply: fabric.UseReply{State: bourse.StateStarted, Instance: "I1", Boot: 1, Port: 8080, TTL: bourse.Duration(15 * time.Second), Others: 4},
		dial:  func() (net.Conn, error) { return nil, bourse.Errorf(bourse.CodeUnavailable, "nothing listens") },
	}
}

func (w *worker) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *worker) calls() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.asked)
}

func (w *worker) last() fabric.UseRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[len(w.asked)-1]
}

func (w *worker) use(ctx context.Context, req fabric.UseRequest) (fabric.UseReply, error) {
	w.mu.Lock()
	w.asked = append(w.asked, req)
	slow, deaf := w.slow, w.deaf
	w.mu.Unlock()
	if deaf {
		<-ctx.Done()
		return fabric.UseReply{}, ctx.Err()
	}
	if req.Wait > 0 {
		time.Sleep(slow)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reply, w.err
}

func (w *worker) handler() http.Handler {
	var mux http.ServeMux
	fabric.MachineUse.Handle(&mux, w.use)
	fabric.MachineTunnel.Handle(&mux, func(rw http.ResponseWriter, r *http.Request, _ fabric.TunnelRequest) {
		w.mu.Lock()
		dial := w.dial
		w.mu.Unlock()
		conn, err := dial()
		if err != nil {
			fabric.WriteFailure(rw, err)
			return
		}
		fabric.ServeTunnel(rw, r, conn)
	})
	return &mux
}

// directory is a Directory that contains only one worker.
type directory struct{ bourse.Member }

func (d directory) ByTag(tag bourse.WorkerTag) (bourse.Member, bool) {
	return d.Member, tag == machine.Tag()
}

func member(address string) directory {
	return directory{bourse.Member{ID: "w1", Role: bourse.RoleWorker, Address: address}}
}

func newWays(w *worker) *upstream.Pool {
	return upstream.New(upstream.Config{
		Fabric: fabrictest.Serving(w.handler()), Directory: member("192.0.2.1:4281"), Self: "p1", Host: "here",
		Log: slog.New(slog.DiscardHandler),
	})
}

// running runs a pool until the test ends.
func running(t *testing.T, w *upstream.Pool) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { end(); done.Wait() })
}

func use(t *testing.T, w *upstream.Pool) *upstream.Upstream {
	t.Helper()
	got, err := w.Use(t.Context(), "w1", machine, 8080, true)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func ended(y *upstream.Upstream) bool {
	select {
	case <-y.Done():
		return y.Err() != nil
	default:
		return false
	}
}

// TestOneCall checks that any number of requests for a machine cause only one call to its worker, and no call while the
// machine counts as used.
func TestOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker()
		w.slow = 3 * time.Second
		ways := newWays(w)
		var all sync.WaitGroup
		for range 5000 {
			all.Go(func() {
				if got, err := ways.Use(t.Context(), "w1", machine, 8080, true); err != nil || got.Instance() != "I1" {
					t.Errorf("%v, %v", got, err)
				}
			})
		}
		all.Wait()
		first := use(t, ways)
		if w.calls() != 1 {
			t.Errorf("the worker received %d calls", w.calls())
		}
		want := fabric.UseRequest{
			Machine: machine, Port: 8080, Start: true, Wait: bourse.Duration(30 * time.Second),
			By: "p1", Host: "here", TTL: bourse.Duration(15 * time.Second), Requests: 1,
		}
		if w.last() != want {
			t.Errorf("the worker received %+v, want %+v", w.last(), want)
		}
		if got := ways.Others(machine); got != 4 {
			t.Errorf("other proxies have %d requests on the machine", got)
		}
		time.Sleep(15 * time.Second)
		if again := use(t, ways); w.calls() != 2 || again != first {
			t.Errorf("after the use has expired: %d calls, the same upstream: %v", w.calls(), again == first)
		}
	})
}

func TestErrorsAreTheWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker()
		ways := newWays(w)
		for _, code := range []bourse.Code{bourse.CodeFailedPrecondition, bourse.CodeInsufficient, bourse.CodeNotFound, bourse.CodeTimeout, bourse.CodeConflict} {
			w.change(func() { w.err = bourse.Errorf(code, "so it is") })
			if _, err := ways.Use(t.Context(), "w1", machine, 8080, true); bourse.CodeOf(err) != code || !strings.Contains(err.Error(), "so it is") {
				t.Errorf("got %v, want %s", err, code)
			}
		}
		w.change(func() { w.err = fabric.Lost(t.Context(), bourse.Member{ID: "w1"}, io.ErrUnexpectedEOF) })
		if _, err := ways.Use(t.Context(), "w1", machine, 8080, true); bourse.CodeOf(err) != bourse.CodeTimeout {
			t.Errorf("a worker that reports a lost answer: %v", err)
		}
		if _, err := ways.Use(t.Context(), "w2", machine, 8080, true); bourse.CodeOf(err) != bourse.CodeUnavailable {
			t.Errorf("a machine on an unknown worker: %v", err)
		}
		if _, err := ways.Use(t.Context(), "w1", "248e21ea1d5389", 8080, true); bourse.CodeOf(err) != bourse.CodeUnavailable {
			t.Errorf("a machine that is not on the worker: %v", err)
		}
	})
}

// losing is a fabric that delivers requests, but loses the answers.
type losing struct{ fabric.Fabric }

func (losing) Send(ctx context.Context, to bourse.Member, _ *fabric.Message) (fabric.Answer, error) {
	return fabric.Answer{}, fabric.Lost(ctx, to, io.ErrUnexpectedEOF)
}

// TestLostAnswerMeansUnavailable checks that, after a lost answer, the error is unavailable rather than a timeout, so
// that the request is retried.
func TestLostAnswerMeansUnavailable(t *testing.T) {
	ways := upstream.New(upstream.Config{Fabric: losing{}, Directory: member("192.0.2.1:4281"), Self: "p1", Log: slog.New(slog.DiscardHandler)})
	if _, err := ways.Use(t.Context(), "w1", machine, 8080, true); bourse.CodeOf(err) != bourse.CodeUnavailable || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Use: %v", err)
	}
}

// TestSharedCallSurvivesCancellation checks that canceling a request cancels the call only if no other request is
// waiting for it.
func TestSharedCallSurvivesCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker()
		w.slow = 3 * time.Second
		ways := newWays(w)
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := ways.Use(ctx, "w1", machine, 8080, true); !errors.Is(err, context.Canceled) {
				t.Errorf("the canceled request: %v", err)
			}
		})
		all.Go(func() {
			time.Sleep(time.Second)
			leave()
		})
		all.Go(func() { use(t, ways) })
		all.Wait()
		if w.calls() != 1 {
			t.Errorf("%d calls", w.calls())
		}
		w.change(func() { w.deaf = true })
		time.Sleep(time.Minute)
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := ways.Use(soon, "w1", machine, 8080, true); err == nil {
			t.Error("a call to an unresponsive worker succeeded")
		}
		synctest.Wait() // the call must have ended as well, or the bubble would not end
	})
}

// TestUseIsRenewed checks that a use is renewed while requests are in progress, but not afterward.
func TestUseIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker()
		ways := newWays(w)
		running(t, ways)
		y := use(t, ways)
		end := y.Begin()
		second := y.Begin()
		time.Sleep(time.Minute)
		if n := w.calls(); n < 11 || n > 14 || w.last().Requests != 2 || w.last().Wait != 0 || w.last().Start {
			t.Errorf("%d calls, the last one %+v", n, w.last())
		}
		end()
		end()
		second()
		time.Sleep(10 * time.Second)
		before := w.calls()
		if w.last().Requests != 0 {
			t.Errorf("last call: %+v", w.last())
		}
		time.Sleep(time.Minute)
		if w.calls() != before || ended(y) {
			t.Errorf("%d more calls, upstream ended: %v", w.calls()-before, ended(y))
		}
		time.Sleep(10 * time.Minute)
		if !ended(y) {
			t.Error("an unused upstream has not ended")
		}
	})
}

// TestChangedMachineGetsNewUpstream checks that another start, version or port leads to a new upstream.
func TestChangedMachineGetsNewUpstream(t *testing.T) {
	for name, change := range map[string]func(*fabric.UseReply){
		"start":   func(r *fabric.UseReply) { r.Boot++ },
		"version": func(r *fabric.UseReply) { r.Instance = "I2" },
		"port":    func(r *fabric.UseReply) { r.Port++ },
	} {
		for _, renewed := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorker()
				ways := newWays(w)
				running(t, ways)
				y := use(t, ways)
				if renewed {
					defer y.Begin()()
				}
				w.change(func() { change(&w.reply) })
				time.Sleep(15 * time.Second)
				next := use(t, ways)
				if next == y || !ended(y) || ended(next) {
					t.Errorf("%s, renewed %v: same upstream: %v, old one ended: %v, new one ended: %v", name, renewed, next == y, ended(y), ended(next))
				}
			})
		}
	}
}

// TestUpstreamEndsWithItsMachine checks that an upstream ends when the worker reports that the machine has stopped.
func TestUpstreamEndsWithItsMachine(t *testing.T) {
	for name, change := range map[string]func(*worker){
		"stopping": func(w *worker) { w.reply.State = bourse.StateStopping },
		"gone":     func(w *worker) { w.err = bourse.Errorf(bourse.CodeNotFound, "machine not found") },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorker()
			ways := newWays(w)
			running(t, ways)
			y := use(t, ways)
			defer y.Begin()()
			w.change(func() { change(w) })
			time.Sleep(6 * time.Second)
			if !ended(y) {
				t.Errorf("%s: the upstream has not ended", name)
			}
		})
	}
}

// TestSuspendedUnderRequests checks that a machine that was suspended with requests in progress is resumed, whereas a
// machine without requests is not.
func TestSuspendedUnderRequests(t *testing.T) {
	for _, busy := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorker()
			ways := newWays(w)
			running(t, ways)
			y := use(t, ways)
			end := y.Begin()
			if !busy {
				end()
			}
			w.change(func() { w.reply.State = bourse.StateSuspended })
			time.Sleep(6 * time.Second)
			if last := w.last(); (last.Start && last.Wait > 0) != busy || !ended(y) {
				t.Errorf("busy %t: the last call was %+v", busy, last)
			}
			end()
		})
	}
}

// TestAWorkerThatDoesNotAnswer checks that upstreams and tunnels end once their machines no longer
// count as used, but not earlier.
func TestAWorkerThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker()
		near, far := net.Pipe()
		defer far.Close()
		w.dial = func() (net.Conn, error) { return near, nil }
		ways := newWays(w)
		running(t, ways)
		y := use(t, ways)
		defer y.Begin()()
		c, err := y.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		w.change(func() { w.deaf = true })
		time.Sleep(9 * time.Second)
		w.change(func() { w.deaf = false })
		time.Sleep(time.Minute)
		if ended(y) {
			t.Fatalf("the upstream ended after one lost answer: %v", y.Err())
		}
		w.change(func() { w.deaf = true })
		begin := time.Now()
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("the tunnel of a lost worker ended with %v", err)
		}
		if took := time.Since(begin); took < 10*time.Second || took > 25*time.Second || !ended(y) {
			t.Errorf("the tunnel ended after %s, upstream ended: %v", took, ended(y))
		}
	})
}

// TestDialFails checks that an upstream ends when dialing fails, and that the next use asks the
// worker.
func TestDialFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker()
		ways := newWays(w)
		y := use(t, ways)
		if _, err := y.Dial(t.Context()); bourse.CodeOf(err) != bourse.CodeUnavailable || !ended(y) {
			t.Errorf("%v, ended: %v", err, ended(y))
		}
		if _, err := y.Dial(t.Context()); err == nil {
			t.Error("an upstream that has ended can still be dialed")
		}
		if again := use(t, ways); again == y || w.calls() != 2 {
			t.Errorf("same upstream: %v, %d calls", again == y, w.calls())
		}
	})
}

// TestBytesKeepAMachineInUse checks that a machine counts as used while bytes flow, even if there
// are no requests.
func TestBytesKeepAMachineInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker()
		near, far := net.Pipe()
		w.dial = func() (net.Conn, error) { return near, nil }
		ways := newWays(w)
		running(t, ways)
		y := use(t, ways)
		c, err := y.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		idle := w.calls()
		time.Sleep(time.Minute)
		if w.calls() != idle {
			t.Error("an open connection without traffic counted as a use")
		}
		if _, err := far.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		if w.calls() != idle+1 {
			t.Errorf("use was reported %d times, want once", w.calls()-idle)
		}
		time.Sleep(time.Hour)
		if ended(y) {
			t.Error("an upstream with a connection has ended")
		}
		c.Close()
		far.Close()
	})
}
