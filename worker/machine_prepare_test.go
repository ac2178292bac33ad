package worker

import (
	"testing"
	"testing/synctest"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// While the intent of a start is on its way to the disk its program is
// prepared and does not run; when the disk does not take it, nothing is left.
func TestAProgramWaitsForItsIntent(t *testing.T) {
	for name, fails := range map[string]bool{"durable": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHostDown(t, nil)
				armed, prepared := false, 0
				h.start(func(stage store.FaultStage, _ uint64) error {
					if !armed || stage != store.FaultBefore {
						return nil
					}
					armed = false
					synctest.Wait() // all others have come as far as they can
					prepared = len(h.mem.Prepared())
					if n := h.mem.Starts(); n != 0 {
						t.Errorf("%d programs run before their intent is durable", n)
					}
					if fails {
						return errCrash
					}
					return nil
				})
				synctest.Wait()
				armed = true
				_, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *newOrder(t, run("run"))})
				if refused := refusal != nil || err != nil; refused != fails {
					t.Errorf("claim: %+v, %v, want refused: %t", refusal, err, fails)
				}
				if prepared != 1 {
					t.Errorf("%d programs were prepared meanwhile, want 1", prepared)
				}
				if left := h.mem.Prepared(); len(left) > 0 {
					t.Errorf("prepared and forgotten: %v", left)
				}
				if got, want := h.mem.Starts() == 0, fails; got != want {
					t.Errorf("nothing has run: %t, want %t", got, want)
				}
				h.crash()
			})
		})
	}
}

// What is not recorded as starting, or more than a program, is not prepared.
func TestWhatIsNotPrepared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		m := bourse.Machine{ID: "00000100000001", State: bourse.StateStarting, Config: newOrder(t).Config}
		m.Boot.Number = 1
		if h.preparer(&m) == nil {
			t.Error("a program of the host is not prepared")
		}
		for name, change := range map[string]func(*bourse.Machine){
			"created":    func(m *bourse.Machine) { m.State = bourse.StateCreated },
			"a task's":   func(m *bourse.Machine) { m.Config.AutoDestroy = true },
			"an image":   func(m *bourse.Machine) { m.Config.Image = rigImage },
			"a volume":   func(m *bourse.Machine) { m.Config.Mounts = []bourse.Mount{{Path: "/data"}} },
			"a device":   func(m *bourse.Machine) { m.Config.Guest = &bourse.Guest{GPUs: 1, GPUKind: "a10"} },
			"a poller's": func(m *bourse.Machine) { m.Config.Image = bourse.ImagePull },
		} {
			other := m
			change(&other)
			if h.preparer(&other) != nil {
				t.Errorf("%s: is prepared", name)
			}
		}
		h.crash()
	})
}

// An order that is refused where it is recorded leaves nothing prepared.
func TestARefusedOrderLeavesNothingPrepared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		for range 12 { // they do not all fit, and are checked at the same time
			order := newOrder(t, func(o *bourse.Order) { o.Config.Guest.MemoryMB = 600 })
			go func() { _, _, _ = h.claim(t.Context(), &bourse.Claim{Order: *order}) }()
		}
		synctest.Wait()
		if n, left := h.mem.Starts(), h.mem.Prepared(); n == 0 || n == 12 || len(left) > 0 {
			t.Errorf("%d of 12 started, prepared and forgotten: %v", n, left)
		}
		h.crash()
	})
}
