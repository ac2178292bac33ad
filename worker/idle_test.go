package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver/drivertest"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/watch"
)

// serving gives an order's machine one service, with the given options.
func serving(format string, args ...any) func(*bourse.Order) {
	return func(o *bourse.Order) {
		o.Config.Services = json.RawMessage(fmt.Sprintf(`[{"internal_port":8080,"ports":[{"port":80,"handlers":["http"]}],"autostart":true,`+format+`}]`, args...))
	}
}

// causes returns the changes to a machine that its worker made without a request, with their reasons, oldest first.
func causes(m bourse.Machine) (out []string) {
	for _, e := range slices.Backward(m.LastEvents) {
		if e.Reason != "" {
			out = append(out, fmt.Sprintf("%s/%s by %s: %s", e.Type, e.State, e.Source, e.Reason))
		}
	}
	return out
}

func TestAnIdleMachineIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHostDown(t, nil)
		h.start(nil)
		defer h.crash()
		m := h.place(serving(`"autostop":"stop"`), func(o *bourse.Order) { o.Config.Restart.Policy = bourse.RestartAlways })
		busy := h.place(serving(`"autostop":"off"`))
		is := func(what string, after time.Duration, state bourse.State) {
			t.Helper()
			time.Sleep(after)
			if m = h.get(m.ID); m.State != state {
				t.Fatalf("%s: %s, want %s", what, m.State, state)
			}
		}
		is("just started", 59*time.Second, bourse.StateStarted)
		h.uses.Use(m.ID, "p1", 1, 30*time.Second)
		is("a request is in progress", 29*time.Second, bourse.StateStarted)
		h.uses.Use(m.ID, "p1", 0, 0)
		is("it has ended", 59*time.Second, bourse.StateStarted)
		is("nobody uses it", 2*time.Second, bourse.StateStopped)
		is("its policy does not restart it", time.Hour, bourse.StateStopped)
		if diff := cmp.Diff([]string{"stop/stopping by worker: idle for 1m0s"}, causes(m)); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}

		h.must(h.machines.Start(t.Context(), m.ID, fabric.MachineAction{}))
		is("started again", 59*time.Second, bourse.StateStarted)
		h.crash()
		h.start(nil)
		is("the daemon has restarted", 59*time.Second, bourse.StateStarted)
		is("not used since", 2*time.Second, bourse.StateStopped)

		h.must(h.machines.Start(t.Context(), m.ID, fabric.MachineAction{}))
		h.uses.Use(m.ID, "itself", 0, time.Hour)
		is("it keeps itself awake", 50*time.Minute, bourse.StateStarted)
		h.uses.Drop(m.ID, "itself")
		is("it no longer keeps itself awake", 59*time.Second, bourse.StateStarted)
		is("for a minute", 2*time.Second, bourse.StateStopped)

		h.must(h.machines.Start(t.Context(), m.ID, fabric.MachineAction{}))
		done := h.uses.Begin(m.ID)
		is("something is in progress", 24*time.Hour, bourse.StateStarted)
		done()
		is("it has ended", 61*time.Second, bourse.StateStopped)

		h.must(h.machines.Start(t.Context(), m.ID, fabric.MachineAction{}))
		if _, err := h.machines.Lease(t.Context(), m.ID, fabric.LeaseRequest{TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		is("leased", 59*time.Minute, bourse.StateStarted)
		is("the lease has ended", 2*time.Minute, bourse.StateStopped)
		if m := h.get(busy.ID); m.State != bourse.StateStarted {
			t.Errorf("a machine without autostop is %s", m.State)
		}
		h.verify()
	})
}

func TestAnIdleMachineIsSuspended(t *testing.T) {
	for name, c := range map[string]struct {
		fault  error // error returned when the program is frozen
		labels map[string]string
		state  bourse.State
		want   []string
	}{
		"suspended": {state: bourse.StateSuspended, want: []string{"suspend/suspending by worker: idle for 1m0s"}},
		"its program cannot": {
			fault: bourse.Errorf(bourse.CodeFailedPrecondition, "no"), state: bourse.StateStopped,
			want: []string{"suspend/suspending by worker: idle for 1m0s", "stop/stopping by worker: idle for 1m0s"},
		},
		"its host cannot": {
			labels: map[string]string{"cgroup": "none"}, state: bourse.StateStopped,
			want: []string{"stop/stopping by worker: idle for 1m0s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHostDown(t, nil)
				h.mem.SetHooks(drivertest.Hooks{Before: func(_ context.Context, call drivertest.Call) error {
					if call.Op == "Freeze" {
						return c.fault
					}
					return nil
				}})
				if c.labels != nil {
					h.mem.SetLabels(c.labels)
				}
				h.start(nil)
				defer h.crash()
				m := h.place(serving(`"autostop":"suspend"`))
				time.Sleep(10 * time.Minute)
				m = h.get(m.ID)
				if m.State != c.state {
					t.Fatalf("%s, want %s: %v", m.State, c.state, story(m))
				}
				if diff := cmp.Diff(c.want, causes(m)); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				m = h.must(h.machines.Start(t.Context(), m.ID, fabric.MachineAction{}))
				time.Sleep(30 * time.Second)
				if m = h.get(m.ID); m.State != bourse.StateStarted {
					t.Errorf("%s half a minute after the start", m.State)
				}
				h.verify()
			})
		})
	}
}

// Requests arrive at any moment around the stop of an idle machine. Each request either finds the machine running, and
// then the machine keeps running for as long as the request asked for, or finds it stopped and starts it. A machine
// never stops while it is in use.
func TestAUseRacesTheStop(t *testing.T) {
	for _, autostop := range []string{"stop", "suspend"} {
		t.Run(autostop, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHostDown(t, func(c *Config) { c.IdleAfter = time.Second })
				h.start(nil)
				defer h.crash()
				m := h.place(serving(`"autostop":%q`, autostop))
				var stopped atomic.Int32
				held := 0
				for i := range 400 {
					// The stop is due one second after the previous use ended.
					time.Sleep(time.Second + time.Duration(i-200)*time.Millisecond)
					var group sync.WaitGroup
					for who := range 3 {
						group.Go(func() { // use the machine as the API's machine/use call does
							h.uses.Use(m.ID, fmt.Sprint("p", who), 1, time.Second)
							now := h.get(m.ID)
							if now.State == bourse.StateStarted {
								return
							}
							stopped.Add(1)
							ready, err := h.state.AwaitMachine(t.Context(), m.ID, func(m *bourse.Machine) bool { return m.State.Settled() })
							if err == nil && ready.State != bourse.StateStarted {
								_, err = h.machines.Start(t.Context(), m.ID, fabric.MachineAction{})
							}
							if err != nil && bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
								t.Error(err)
							}
						})
					}
					group.Wait()
					for range 8 {
						held++
						time.Sleep(100 * time.Millisecond)
						if now := h.get(m.ID); now.State != bourse.StateStarted {
							t.Fatalf("round %d: %s while it is in use: %v", i, now.State, story(now))
						}
					}
					for who := range 3 {
						h.uses.Use(m.ID, fmt.Sprint("p", who), 0, 0)
					}
				}
				t.Logf("%d uses found the machine stopped, and %d found it running", stopped.Load(), held)
				if stopped.Load() == 0 {
					t.Error("the machine was never stopped")
				}
				h.verify()
			})
		})
	}
}

// others is a worker's view of an app's machines on other workers.
type others struct {
	mu    sync.Mutex
	list  []bourse.Machine
	lost  bool
	blind bool
}

func (o *others) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

func (o *others) App(context.Context, bourse.AppRef) ([]bourse.Machine, func(bourse.WorkerTag) watch.Host, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	lost := o.lost
	return slices.Clone(o.list), func(bourse.WorkerTag) watch.Host {
		if lost {
			return watch.HostLost
		}
		return watch.HostReachable
	}, nil
}

func (o *others) Complete() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.blind
}

func (o *others) Changed() <-chan struct{} { return nil }

// An app's autostop leaves min_machines_running machines running: those with the lowest ids that the worker knows of,
// on any worker.
func TestEnoughMachinesKeepRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &others{}
		h := newHostDown(t, func(c *Config) { c.Standby = o; c.Tag = func() bourse.WorkerTag { return 5 } })
		h.start(nil)
		defer h.crash()
		two := serving(`"autostop":"stop","min_machines_running":2`)
		var ids []bourse.MachineID
		for range 3 {
			ids = append(ids, h.place(two).ID)
		}
		slices.Sort(ids)
		is := func(what string, want ...bourse.MachineID) {
			t.Helper()
			time.Sleep(3 * time.Minute)
			var got []bourse.MachineID
			for _, id := range ids {
				if h.get(id).State == bourse.StateStarted {
					got = append(got, id)
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%s: %v run, want %v of %v", what, got, want, ids)
			}
		}
		is("alone", ids[0], ids[1])
		other := bourse.Machine{ID: "00000100000001", Worker: "w9", Region: "gru", State: bourse.StateStarted, Config: newOrder(t, two).Config}
		o.set(func() { o.list, o.lost = []bourse.Machine{other}, true })
		is("another machine's worker is lost", ids[0], ids[1])
		o.set(func() { o.lost, o.blind = false, true })
		is("the state of the app's other machines is unknown", ids[0], ids[1])
		o.set(func() { o.blind = false })
		is("another machine runs, with a lower id", ids[0])
		o.set(func() { o.list[0].ID = "00000f00000001" })
		h.must(h.machines.Start(t.Context(), ids[1], fabric.MachineAction{}))
		is("another machine runs, with a higher id", ids[0], ids[1])
	})
}

// The daemon dies before and after each commit while its idle machine is stopped. After
// a restart, the machine is stopped or suspended again once it is idle.
func TestCrashesOfAnIdleStop(t *testing.T) {
	for _, autostop := range []string{"stop", "suspend"} {
		life := func(h *host) {
			fill, _, err := h.claim(h.t.Context(), &bourse.Claim{Order: *newOrder(h.t, serving(`"autostop":%q`, autostop))})
			if err == nil && fill != nil {
				time.Sleep(2 * time.Minute)
			}
		}
		var commits uint64
		synctest.Test(t, func(t *testing.T) {
			h := newHostDown(t, nil)
			h.start(func(_ store.FaultStage, n uint64) error { commits = max(commits, n); return nil })
			life(h)
			h.crash()
		})
		t.Logf("%s: %d commits", autostop, commits)
		for n := uint64(2); n <= commits; n++ {
			for _, stage := range []store.FaultStage{store.FaultBefore, store.FaultAfter} {
				t.Run(fmt.Sprintf("%s/commit=%d/stage=%d", autostop, n, stage), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						h := newHostDown(t, nil)
						if h.tryStart(crashAt(stage, n)) == nil {
							life(h)
							h.crash()
						}
						running := h.tasks()
						h.start(nil)
						h.checkRunning(running)
						defer h.crash()
						list, err := h.machines.List(t.Context(), nil, func(*bourse.Machine) bool { return true })
						if err != nil || len(list) == 0 {
							return
						}
						time.Sleep(2 * time.Minute)
						want := map[string]bourse.State{"stop": bourse.StateStopped, "suspend": bourse.StateSuspended}[autostop]
						if m := h.get(list[0].ID); m.State != want {
							t.Errorf("%s, want %s: %v", m.State, want, story(m))
						}
						h.verify()
					})
				})
			}
		}
	}
}
