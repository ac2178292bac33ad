package worker

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/bourse-dev/bourse/driver/drivertest"
	"github.com/bourse-dev/bourse/store"
)

// Invariants 5 and 6 also hold for machines with an image, a network, a volume, scratch space and a device. Whenever
// the daemon dies, each running machine has all of these on the host, and no destroyed machine has left any of them
// behind.
func TestInvariants5And6OfImages(t *testing.T) {
	enumerateCrashes(t, newRig, func(h *host, d *diary) {
		checkBounce(h, d)
		checkIntent(h, d)
	})
}

// death kills the daemon during its at-th call to the host, before or after the call
// takes effect. From then on the daemon cannot access its host or its disk.
type death struct {
	at    int
	after bool
	kill  func()

	mu    sync.Mutex
	calls int
	ends  map[int]bool // numbers of the calls that are also reported after they take effect
	dead  bool
}

func (d *death) call(_ context.Context, name string, after bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return errCrash
	}
	if after {
		d.ends[d.calls] = true
	} else {
		d.calls++
	}
	if d.calls != d.at || after != d.after {
		return nil
	}
	d.dead = true
	d.kill()
	return fmt.Errorf("%w in %s", errCrash, name)
}

func (d *death) commit(store.FaultStage, uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return errCrash
	}
	return nil
}

// haunt makes all calls to the rig's fakes pass through d. If d is nil, it removes the hooks.
func (h *host) haunt(d *death) {
	var hooks drivertest.Hooks
	call := func(context.Context, string, bool) error { return nil }
	if d != nil {
		call = d.call
		hooks = drivertest.Hooks{
			Before: func(ctx context.Context, c drivertest.Call) error { return d.call(ctx, c.Op, false) },
			After:  func(ctx context.Context, c drivertest.Call) error { return d.call(ctx, c.Op, true) },
		}
	}
	h.mem.SetHooks(hooks)
	h.rig.containers.SetHooks(hooks)
	h.rig.images.failing(call)
	h.rig.network.failing(call)
	h.rig.volumes.SetFault(func(name, _ string) error { return call(h.t.Context(), name, false) })
}

// haunted runs the scenario with a daemon that d kills during one of its calls.
func (h *host) haunted(d *death, diary *diary) {
	d.kill, d.ends = func() {}, map[int]bool{}
	if err := h.tryStart(d.commit); err != nil {
		h.t.Fatal(err)
	}
	d.kill = h.stop
	h.haunt(d)
	_ = h.lifetime(diary) // the death ends the scenario early
	h.crash()
	h.haunt(nil)
}

// Invariants 5 and 6 also hold if the daemon dies during any call to its drivers,
// images, networks or volumes, rather than during a commit.
func TestADaemonDiesInEveryCall(t *testing.T) {
	var calls int
	var ends map[int]bool
	synctest.Test(t, func(t *testing.T) {
		h := newRigged(t, newRig)
		d := &death{}
		h.haunted(d, newDiary())
		calls, ends = d.calls, d.ends
	})
	t.Logf("%d calls", calls)
	if calls < 40 {
		t.Fatalf("the scenario makes only %d calls", calls)
	}
	for n := 1; n <= calls; n++ {
		for _, after := range []bool{false, true} {
			if after && !ends[n] {
				continue
			}
			t.Run(fmt.Sprintf("call=%d/after=%t", n, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newRigged(t, newRig)
					d := newDiary()
					h.haunted(&death{at: n, after: after}, d)
					running := h.tasks()
					h.start(nil)
					h.checkRunning(running)
					checkBounce(h, d)
					checkIntent(h, d)
					h.verify()
					h.crash()
				})
			})
		}
	}
}
