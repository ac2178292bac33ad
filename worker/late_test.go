package worker

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/worker/machines"
)

// While the container driver is unavailable, everything that does not need it works.
// Once it is available, running containers with a record are adopted and those without
// are removed.
func TestImagesWaitForTheirDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newImageHost(t)
		m := h.place(image(rigImage))
		h.crash()
		stray := driver.TaskID{Machine: "abcdef01234567", Boot: 1}
		if _, err := h.rig.containers.Driver().Start(t.Context(), driver.Task{ID: stray, Command: []string{"run"}}); err != nil {
			t.Fatal(err)
		}
		d := &death{at: -1}
		down := errors.New("containerd is down")
		var mu sync.Mutex
		away := true
		h.setup = func(c *Config) {
			h.rig.setup(c)
			c.Forget = true
			c.Container = &absent{Driver: c.Container, away: func() error {
				mu.Lock()
				defer mu.Unlock()
				if away {
					return down
				}
				return nil
			}}
		}
		h.start(d.commit)
		defer h.crash()
		h.place() // a host process
		_, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *newOrder(t, image(rigImage))})
		if err != nil || refusal == nil || refusal.Reason != bourse.RefusedUnavailable {
			t.Errorf("refusal %+v, %v; want unavailable", refusal, err)
		}
		if _, err := h.machines.Exec(t.Context(), m.ID, &fabric.ExecRequest{Command: []string{"print", "x"}}); bourse.CodeOf(err) != bourse.CodeUnavailable {
			t.Errorf("exec: %v, want unavailable", err)
		}
		if got := h.get(m.ID); got.State != bourse.StateStarted {
			t.Errorf("in the meantime, the machine is %s", got.State)
		}
		mu.Lock()
		away = false
		mu.Unlock()
		time.Sleep(time.Minute)
		if got := h.rig.containers.Running(); len(got) != 1 || got[0].Machine != m.ID {
			t.Errorf("runs %v, want only machine %s", got, m.ID)
		}
		h.rig.containers.End(machines.TaskOf(&m), bourse.Exit{Code: 3})
		if got := h.reaches(m.ID, bourse.StateStopped); got.Boot.Exit.Code != 3 {
			t.Errorf("exit %+v, want code 3", got.Boot.Exit)
		}
	})
}

// absent is a driver that cannot recover for some time.
type absent struct {
	driver.Driver
	away func() error
}

func (a *absent) Recover(ctx context.Context) ([]driver.Status, error) {
	if err := a.away(); err != nil {
		return nil, err
	}
	return a.Driver.Recover(ctx)
}

// If the driver becomes unavailable while it starts a machine, the worker retries until
// the order's deadline. Anything that the driver has created for the machine is removed
// once the driver is available again. Until then, the ledger still contains the
// machine's resources.
func TestAnAbandonedLaunchLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newImageHost(t)
		defer h.crash()
		h.place(image(rigImage)) // pulls the image
		away := true
		var mu sync.Mutex
		h.rig.containers.SetHooks(onlyAfterStart(func() error {
			mu.Lock()
			defer mu.Unlock()
			if away {
				return bourse.Errorf(bourse.CodeUnavailable, "containerd is unavailable")
			}
			return nil
		}))
		order := newOrder(t, image(rigImage), func(o *bourse.Order) {
			o.Timeout = bourse.Duration(20 * time.Second)
			o.Config.Guest.MemoryMB = 3000
		})
		_, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
		if err != nil || refusal == nil || refusal.Reason != bourse.RefusedUnavailable {
			t.Fatalf("refusal %+v, %v; want unavailable", refusal, err)
		}
		if free, err := h.Free(); err != nil || free.Of("memory") > 1100 {
			t.Errorf("free %v, %v, although the container may still exist", free, err)
		}
		mu.Lock()
		away = false
		mu.Unlock()
		time.Sleep(2 * time.Minute)
		if got := h.tasks(); len(got) != 1 {
			t.Errorf("runs %v, want only the first machine", got)
		}
		if free, err := h.Free(); err != nil || free.Of("memory") < 4000 {
			t.Errorf("free %v, %v", free, err)
		}
		h.verify()
	})
}
