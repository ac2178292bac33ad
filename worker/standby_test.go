package worker

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/watch"
)

// primary is a machine of another worker. This worker's standby can replace it.
const primary = bourse.MachineID("0000ff00000001")

// outlook is the worker's view of the primary machine. It outlives the daemons.
type outlook struct {
	moved chan struct{}

	mu    sync.Mutex
	state bourse.State // "" if the view does not contain the primary
	host  watch.Host
	blind bool // whether the view is incomplete
}

func newOutlook() *outlook {
	return &outlook{moved: make(chan struct{}, 1), state: bourse.StateStarted, host: watch.HostReachable}
}

func (o *outlook) setBlind(blind bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.blind = blind
}

func (o *outlook) set(state bourse.State, host watch.Host) {
	o.mu.Lock()
	o.state, o.host = state, host
	o.mu.Unlock()
	select {
	case o.moved <- struct{}{}:
	default:
	}
}

func (o *outlook) App(context.Context, bourse.AppRef) ([]bourse.Machine, func(bourse.WorkerTag) watch.Host, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []bourse.Machine
	if o.state != "" {
		list = append(list, bourse.Machine{ID: primary, Worker: "w9", State: o.state})
	}
	host := o.host
	return list, func(tag bourse.WorkerTag) watch.Host {
		if tag == primary.Tag() {
			return host
		}
		return watch.HostReachable
	}, nil
}

func (o *outlook) Complete() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.blind
}

func (o *outlook) Changed() <-chan struct{} { return o.moved }

// spare makes an order's machine a standby for primary.
func spare(o *bourse.Order) {
	o.SkipLaunch = true
	o.Config.Standbys = []bourse.MachineID{primary}
}

// standbyHost returns a host with a standby, whose primary is running.
func standbyHost(t *testing.T, o *outlook) *host {
	return newHostDown(t, func(c *Config) { c.Standby = o })
}

func TestASpareStandsInAndDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutlook()
		h := standbyHost(t, o)
		h.start(nil)
		defer h.crash()
		m := h.place(spare)
		is := func(what string, after time.Duration, state bourse.State, standsIn bourse.MachineID) {
			t.Helper()
			time.Sleep(after)
			if m = h.get(m.ID); m.State != state || m.Boot.PromotedFor != standsIn {
				t.Fatalf("%s: %s, promoted for %q; want %s and %q", what, m.State, m.Boot.PromotedFor, state, standsIn)
			}
		}
		is("the primary runs", time.Hour, bourse.StateStopped, "")
		o.set(bourse.StateStopped, watch.HostLost)
		is("the primary was stopped", time.Hour, bourse.StateStopped, "")
		o.set(bourse.StateStarted, watch.HostLost)
		is("lost for less than the failover delay", 9*time.Second, bourse.StateStopped, "")
		o.set(bourse.StateStarted, watch.HostReachable)
		is("it was unreachable for a moment", time.Minute, bourse.StateStopped, "")
		o.set(bourse.StateStarted, watch.HostLost)
		is("it is lost", 11*time.Second, bourse.StateStarted, primary)
		h.crash()
		h.start(nil)
		is("the daemon has restarted", time.Minute, bourse.StateStarted, primary)
		o.set(bourse.StateStopped, watch.HostReachable)
		is("the primary is back, and does not run", time.Minute, bourse.StateStarted, primary)
		o.set(bourse.StateStarted, watch.HostReachable)
		is("it runs again", time.Minute, bourse.StateStopped, "")
		want := []string{
			"launch/created", "prepare/stopped",
			"promote/starting (machine 0000ff00000001: its worker w9 is unreachable)", "start/started",
			"demote/stopping (machine 0000ff00000001 runs again)", "exit/stopped",
		}
		got := story(m)
		for i := range m.LastEvents {
			if e := m.LastEvents[len(m.LastEvents)-1-i]; e.Reason != "" {
				got[i] += " (" + e.Reason + ")"
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}

		o.set(bourse.StateStarted, watch.HostLost)
		is("it is lost again", time.Minute, bourse.StateStarted, primary)
		h.must(h.machines.Stop(t.Context(), m.ID, fabric.MachineAction{}))
		is("someone has stopped the standby", time.Hour, bourse.StateStopped, primary)
		o.set(bourse.StateStarted, watch.HostReachable)
		is("the primary is back", time.Minute, bourse.StateStopped, "")
		o.set(bourse.StateStarted, watch.HostLost)
		is("it is lost once more", time.Minute, bourse.StateStarted, primary)
		h.must(h.machines.Restart(t.Context(), m.ID, fabric.MachineAction{}))
		o.set(bourse.StateStarted, watch.HostReachable)
		is("someone has restarted the standby, so it is not demoted", time.Hour, bourse.StateStarted, "")
		h.verify()
	})
}

func TestASpareWaitsForTheView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutlook()
		h := standbyHost(t, o)
		h.start(nil)
		defer h.crash()
		m := h.place(spare)
		o.setBlind(true)
		o.set("", watch.HostLost) // the view's file was replaced, so the primary is missing
		time.Sleep(time.Hour)
		if m = h.get(m.ID); m.State != bourse.StateStopped {
			t.Errorf("%s while the view is incomplete", m.State)
		}
		o.setBlind(false)
		o.set(bourse.StateStarted, watch.HostReachable)
		time.Sleep(time.Minute)
		o.set("", watch.HostRemoved)
		time.Sleep(time.Second)
		if m = h.get(m.ID); m.State != bourse.StateStarted || m.Boot.PromotedFor != primary {
			t.Errorf("%s a second after the worker was removed, want started", m.State)
		}
	})
}

// If a host is full, its standby is not started, but the worker tries again later. The
// host is never oversold.
func TestAStandbyWaitsForCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutlook()
		h := standbyHost(t, o)
		h.start(nil)
		defer h.crash()
		m := h.place(spare)
		full := h.place(run("run"), func(o *bourse.Order) { o.Config.Guest.MemoryMB = 4096 })
		o.set(bourse.StateStarted, watch.HostLost)
		time.Sleep(time.Minute)
		if m = h.get(m.ID); m.State != bourse.StateStopped {
			t.Fatalf("%s on a full host", m.State)
		}
		h.must(h.machines.Destroy(t.Context(), full.ID, fabric.MachineAction{Force: true}))
		time.Sleep(10 * time.Second)
		if m = h.get(m.ID); m.State != bourse.StateStarted {
			t.Errorf("%s once the host has capacity", m.State)
		}
		h.verify()
	})
}

// The daemon dies before and after each commit while its standby is promoted and
// demoted. After a restart, every running task has a record, the standby runs while the
// primary is lost, and it has stopped once the primary is back.
func TestCrashesOfAStandby(t *testing.T) {
	life := func(h *host, o *outlook) {
		fill, _, err := h.claim(h.t.Context(), &bourse.Claim{Order: *newOrder(h.t, spare)})
		if err != nil || fill == nil {
			return
		}
		for _, host := range []watch.Host{watch.HostLost, watch.HostReachable} {
			o.set(bourse.StateStarted, host)
			time.Sleep(30 * time.Second)
		}
	}
	var commits uint64
	synctest.Test(t, func(t *testing.T) {
		o := newOutlook()
		h := standbyHost(t, o)
		h.start(func(_ store.FaultStage, n uint64) error { commits = max(commits, n); return nil })
		life(h, o)
		h.crash()
	})
	t.Logf("%d commits", commits)
	for n := uint64(2); n <= commits; n++ {
		for _, stage := range []store.FaultStage{store.FaultBefore, store.FaultAfter} {
			t.Run(fmt.Sprintf("commit=%d/stage=%d", n, stage), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o := newOutlook()
					h := standbyHost(t, o)
					if h.tryStart(crashAt(stage, n)) == nil {
						life(h, o)
						h.crash()
					}
					o.set(bourse.StateStarted, watch.HostLost)
					running := h.tasks()
					h.start(nil)
					h.checkRunning(running)
					defer h.crash()
					list, err := h.machines.List(t.Context(), nil, func(*bourse.Machine) bool { return true })
					if err != nil || len(list) == 0 {
						return
					}
					time.Sleep(time.Minute)
					if m := h.get(list[0].ID); m.State != bourse.StateStarted || m.Boot.PromotedFor != primary || len(h.tasks()) != 1 {
						t.Errorf("%s for %q with %d tasks while the primary is lost", m.State, m.Boot.PromotedFor, len(h.tasks()))
					}
					o.set(bourse.StateStarted, watch.HostReachable)
					time.Sleep(time.Minute)
					if m := h.get(list[0].ID); m.State != bourse.StateStopped || m.Boot.PromotedFor != "" || len(h.tasks()) != 0 {
						t.Errorf("%s for %q with %d tasks when it is back", m.State, m.Boot.PromotedFor, len(h.tasks()))
					}
					h.verify()
				})
			})
		}
	}
}
