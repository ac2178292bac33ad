package reach_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/worker/reach"
	"github.com/bourse-dev/bourse/worker/state"
)

const id = bourse.MachineID("148e21ea1d5389")

// host is a worker with one machine.
type host struct {
	*reach.Reach
	startErr error

	mu      sync.Mutex
	m       bourse.Machine
	changed chan struct{}
	starts  int
	dials   int
	opens   bool  // whether the program accepts connections
	dialErr error // dial error while the program does not accept connections; default unavailable
	uses    []string
}

func newHost(s bourse.State) *host {
	h := &host{changed: make(chan struct{})}
	h.m = bourse.Machine{ID: id, State: s, Instance: "I1", Boot: bourse.Boot{Number: 3, Port: 20001}}
	h.Reach = reach.New(reach.Config{Machines: h, Start: h.start, Dial: h.dial, Uses: h, Host: "here"})
	return h
}

func (h *host) change(f func(*bourse.Machine)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(&h.m)
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *host) become(s bourse.State) { h.change(func(m *bourse.Machine) { m.State = s }) }

func (h *host) Machine(ctx context.Context, of bourse.MachineID) (bourse.Machine, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if of != h.m.ID {
		return bourse.Machine{}, state.ErrNoMachine
	}
	return h.m, ctx.Err()
}

func (h *host) AwaitMachine(ctx context.Context, _ bourse.MachineID, wanted func(*bourse.Machine) bool) (bourse.Machine, error) {
	for {
		h.mu.Lock()
		m, change := h.m, h.changed
		h.mu.Unlock()
		if wanted(&m) {
			return m, nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return m, context.Cause(ctx)
		}
	}
}

func (h *host) start(ctx context.Context, _ bourse.MachineID) error {
	if h.startErr != nil {
		return h.startErr
	}
	h.mu.Lock()
	first := h.m.State != bourse.StateStarting && h.m.State != bourse.StateStarted
	if first {
		h.starts++
		h.m.Boot.Number++
		h.m.State = bourse.StateStarting
	}
	h.mu.Unlock()
	if !first {
		return nil
	}
	time.Sleep(80 * time.Millisecond)
	h.become(bourse.StateStarted)
	return ctx.Err()
}

func (h *host) dial(_ context.Context, m *bourse.Machine, port int) (net.Conn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dials++
	if h.opens {
		near, far := net.Pipe()
		return near, far.Close()
	}
	if h.dialErr != nil {
		return nil, h.dialErr
	}
	return nil, bourse.Errorf(bourse.CodeUnavailable, "connect to port %d of machine %s: refused", port, m.ID)
}

func (h *host) Use(_ bourse.MachineID, who string, requests int, _ time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.uses = append(h.uses, who+" while "+string(h.m.State))
	_ = requests
}

func (h *host) Begin(bourse.MachineID) func() { return func() {} }

func (h *host) Others(bourse.MachineID, string) int { return 7 }

func (h *host) ask(t *testing.T, change func(*fabric.UseRequest)) (fabric.UseReply, error) {
	t.Helper()
	req := fabric.UseRequest{Machine: id, Port: 8080, By: "p1", Host: "here", TTL: bourse.Duration(15 * time.Second), Wait: bourse.Duration(10 * time.Second), Start: true}
	if change != nil {
		change(&req)
	}
	return h.Reach.Use(t.Context(), req)
}

func TestARunningMachineIsReachedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(bourse.StateStarted)
		h.opens = true
		begin := time.Now()
		got, err := h.ask(t, nil)
		want := fabric.UseReply{
			State: bourse.StateStarted, Instance: "I1", Boot: 3, Port: 20001, Address: "127.0.0.1:20001",
			TTL: bourse.Duration(15 * time.Second), Others: 7,
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		if took := time.Since(begin); took != 0 || h.dials != 1 || h.starts != 0 {
			t.Errorf("the request took %s, %d connections and %d starts", took, h.dials, h.starts)
		}
		if diff := cmp.Diff([]string{"p1 while started", "p1 while started"}, h.uses); diff != "" {
			t.Errorf("uses (-want +got):\n%s", diff)
		}
	})
}

func TestTheAddressIsOnlyForClientsOnTheHost(t *testing.T) {
	h := newHost(bourse.StateStarted)
	h.opens = true
	for _, from := range []string{"", "there"} {
		if got, err := h.ask(t, func(r *fabric.UseRequest) { r.Host = from }); err != nil || got.Address != "" || got.Port != 20001 {
			t.Errorf("from %q: %+v, %v", from, got, err)
		}
	}
	h.m.PrivateIP = netip.MustParseAddr("fdaa::1")
	if got, err := h.ask(t, nil); err != nil || got.Address != "" || got.Port != 8080 {
		t.Errorf("with a private network: %+v, %v", got, err)
	}
}

// TestOneStart checks that if several callers request a machine that is not running, it
// is started at most once, whatever state it is in. All callers are answered as soon as
// the machine accepts connections.
func TestOneStart(t *testing.T) {
	for _, from := range []bourse.State{bourse.StateStopped, bourse.StateSuspended, bourse.StateStopping, bourse.StateSuspending, bourse.StateStarting} {
		t.Run(string(from), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(from)
				begin := time.Now()
				switch from {
				case bourse.StateStopping:
					time.AfterFunc(time.Second, func() { h.become(bourse.StateStopped) })
				case bourse.StateSuspending:
					time.AfterFunc(time.Second, func() { h.become(bourse.StateSuspended) })
				case bourse.StateStarting:
					time.AfterFunc(time.Second, func() { h.become(bourse.StateStarted) })
				default:
				}
				opens := 2 * time.Second
				time.AfterFunc(opens, func() { h.mu.Lock(); h.opens = true; h.mu.Unlock() })
				var all sync.WaitGroup
				for range 10 {
					all.Go(func() {
						got, err := h.ask(t, nil)
						if err != nil || got.State != bourse.StateStarted {
							t.Errorf("%+v, %v", got, err)
						}
						if late := time.Since(begin) - opens; late < 0 || late > 25*time.Millisecond {
							t.Errorf("answered %s later than possible", late)
						}
					})
				}
				all.Wait()
				if began := from == bourse.StateStarting; began != (h.starts == 0) || h.starts > 1 {
					t.Errorf("%d starts", h.starts)
				}
				if !strings.HasSuffix(h.uses[0], string(from)) {
					t.Errorf("counted as in use first when %q, want %s", h.uses[0], from)
				}
			})
		})
	}
}

// TestListeningIsNoticedSoon checks that a request returns soon after the program
// begins to listen.
func TestListeningIsNoticedSoon(t *testing.T) {
	for _, after := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			h := newHost(bourse.StateStarted)
			time.AfterFunc(after, func() { h.mu.Lock(); h.opens = true; h.mu.Unlock() })
			begin := time.Now()
			if _, err := h.ask(t, nil); err != nil {
				t.Error(err)
			}
			if late := time.Since(begin) - after; late > max(after/100, 300*time.Microsecond) {
				t.Errorf("a program that listened after %s was found %s later", after, late)
			}
			if h.dials > 1000 {
				t.Errorf("%d attempts within %s", h.dials, after)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	tests := []struct {
		name  string
		state bourse.State
		with  func(*host)
		ask   func(*fabric.UseRequest)
		code  bourse.Code
		text  string
	}{
		{name: "no machine", ask: func(r *fabric.UseRequest) { r.Machine = "148e21ea1d5380" }, code: bourse.CodeNotFound},
		{name: "gone", state: bourse.StateDestroyed, code: bourse.CodeNotFound},
		{name: "stopped, not to be started", state: bourse.StateStopped, ask: func(r *fabric.UseRequest) { r.Start = false }, code: bourse.CodeFailedPrecondition, text: "is stopped"},
		{name: "stopping, not to be started", state: bourse.StateStopping, ask: func(r *fabric.UseRequest) { r.Start = false }, code: bourse.CodeFailedPrecondition, text: "is stopping"},
		{
			name: "failed", state: bourse.StateFailed, code: bourse.CodeFailedPrecondition, text: "no such program",
			with: func(h *host) { h.m.Boot.Exit = &bourse.Exit{Error: "no such program"} },
		},
		{
			name: "its host is full", state: bourse.StateStopped, code: bourse.CodeInsufficient, text: "insufficient memory",
			with: func(h *host) { h.startErr = bourse.Errorf(bourse.CodeInsufficient, "insufficient memory") },
		},
		{
			name: "leased", state: bourse.StateStopped, code: bourse.CodeConflict,
			with: func(h *host) { h.startErr = bourse.Errorf(bourse.CodeConflict, "lease currently held by flyctl") },
		},
		{name: "never accepts", state: bourse.StateStarted, code: bourse.CodeTimeout, text: "nothing accepted connections on its port 20001 within 10s"},
		{name: "never starts", state: bourse.StateStarting, code: bourse.CodeTimeout, text: "it is starting"},
		{
			name: "not its port", state: bourse.StateStarted, code: bourse.CodeForbidden,
			with: func(h *host) { h.dialErr = bourse.Errorf(bourse.CodeForbidden, "not its port") },
		},
		{
			name: "ends without a request", state: bourse.StateStopped, code: bourse.CodeFailedPrecondition, text: "exit code 3",
			with: func(h *host) {
				time.AfterFunc(time.Second, func() {
					h.change(func(m *bourse.Machine) { m.State, m.Boot.Exit = bourse.StateStopped, &bourse.Exit{Code: 3} })
				})
			},
		},
		{
			name: "is stopped by someone", state: bourse.StateStopped, code: bourse.CodeUnavailable, text: "was stopped",
			with: func(h *host) {
				time.AfterFunc(time.Second, func() {
					h.change(func(m *bourse.Machine) {
						m.State, m.Boot.Requested, m.Boot.Exit = bourse.StateStopped, true, &bourse.Exit{Signal: 15}
					})
				})
			},
		},
		{name: "a poller's", state: bourse.StateStarted, code: bourse.CodeFailedPrecondition, with: func(h *host) { h.m.Config.Image = bourse.ImagePull }},
		{
			name: "no port", state: bourse.StateStarted, code: bourse.CodeFailedPrecondition, text: "has no $PORT",
			with: func(h *host) { h.m.Boot.Port = 0 }, ask: func(r *fabric.UseRequest) { r.Port = 0 },
		},
		{name: "by nobody", ask: func(r *fabric.UseRequest) { r.By = "" }, code: bourse.CodeInvalid},
		{name: "no such port", ask: func(r *fabric.UseRequest) { r.Port = 65536 }, code: bourse.CodeInvalid},
		{name: "a negative time", ask: func(r *fabric.UseRequest) { r.TTL = -1 }, code: bourse.CodeInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(tt.state)
				if tt.with != nil {
					tt.with(h)
				}
				_, err := h.ask(t, tt.ask)
				if bourse.CodeOf(err) != tt.code || !strings.Contains(bourse.MessageOf(err), tt.text) {
					t.Errorf("got %v, want %s with %q", err, tt.code, tt.text)
				}
			})
		})
	}
}

// TestARequestWaitsForARestart checks that a request keeps waiting while the program exits
// and is restarted.
func TestARequestWaitsForARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(bourse.StateStarted)
		time.AfterFunc(time.Second, func() { h.become(bourse.StateRestarting) })
		time.AfterFunc(2*time.Second, func() {
			h.change(func(m *bourse.Machine) { m.State, m.Boot.Number = bourse.StateStarted, 4 })
			h.mu.Lock()
			h.opens = true
			h.mu.Unlock()
		})
		if got, err := h.ask(t, nil); err != nil || got.Boot != 4 || h.starts != 0 {
			t.Errorf("%+v, %v, %d starts", got, err, h.starts)
		}
	})
}

// A request does not wait for a program that exits shortly after each start. It fails within a second, with an error
// that describes the crash loop and the last exit.
func TestACrashLoopIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(bourse.StateStarted)
		h.crashAfter(20*time.Millisecond, 1000)
		for range 5 {
			began := time.Now()
			_, err := h.ask(t, nil)
			if bourse.CodeOf(err) != bourse.CodeFailedPrecondition || !strings.Contains(bourse.MessageOf(err), "crash loop") || !strings.Contains(bourse.MessageOf(err), "exit code 3") {
				t.Errorf("got %v", err)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("answered after %s", took)
			}
			time.Sleep(7 * time.Second)
		}
		if h.starts != 0 {
			t.Errorf("%d starts by requests", h.starts)
		}
	})
}

// A request waits for a program that repeatedly exits after running for a minute, and for one that succeeds at its
// third start.
func TestARequestWaitsForARecoveringProgram(t *testing.T) {
	t.Run("after a minute", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHost(bourse.StateStarted)
			h.crashAfter(time.Minute, 4)
			time.Sleep(4*time.Minute + time.Second)
			h.change(func(m *bourse.Machine) {
				if h.opens = true; m.State != bourse.StateRestarting {
					t.Errorf("the machine is %s", m.State)
				}
			})
			if _, err := h.ask(t, nil); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("at the third start", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHost(bourse.StateStarted)
			h.crashAfter(20*time.Millisecond, 2)
			time.AfterFunc(2*time.Second, func() { h.change(func(*bourse.Machine) { h.opens = true }) })
			if _, err := h.ask(t, nil); err != nil {
				t.Error(err)
			}
		})
	})
}

// crashAfter makes the machine's program exit after it has run for the given time, and its policy restart it. It does
// so the given number of times.
func (h *host) crashAfter(run time.Duration, times int) {
	if times == 0 {
		return
	}
	time.AfterFunc(run, func() {
		var pause time.Duration
		h.change(func(m *bourse.Machine) {
			m.State, m.Boot.Exit = bourse.StateRestarting, &bourse.Exit{Code: 3}
			m.Boot.Restarts = append(slices.Clone(m.Boot.Restarts), time.Now())
			pause = bourse.RestartBackoff(len(m.Boot.Restarts))
		})
		time.AfterFunc(pause, func() {
			h.change(func(m *bourse.Machine) {
				m.State, m.Boot.Exit, m.Boot.Number = bourse.StateStarted, nil, m.Boot.Number+1
			})
			h.crashAfter(run, times-1)
		})
	})
}

// TestRenewal checks that a request without a wait returns the machine's current state,
// and neither starts the machine nor connects to it.
func TestRenewal(t *testing.T) {
	for _, s := range []bourse.State{bourse.StateStarted, bourse.StateStopping, bourse.StateStopped} {
		h := newHost(s)
		got, err := h.ask(t, func(r *fabric.UseRequest) { r.Wait, r.Requests, r.TTL = 0, 5, bourse.Duration(time.Hour) })
		if err != nil || got.State != s || h.dials+h.starts != 0 || len(h.uses) != 1 || time.Duration(got.TTL) != time.Minute {
			t.Errorf("%s: %+v, %v, %d connections, %d starts, uses %q", s, got, err, h.dials, h.starts, h.uses)
		}
	}
}
