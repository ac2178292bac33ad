package worker

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/store"
)

func scheduled() func(*bourse.Order) {
	return func(o *bourse.Order) { o.Config.Schedule = bourse.Hourly }
}

// byClock returns the times at which a machine's schedule has started it.
func byClock(m bourse.Machine) (out []time.Time) {
	for _, e := range slices.Backward(m.LastEvents) {
		if e.Source == bourse.SourceClock {
			out = append(out, e.At)
		}
	}
	return out
}

// A schedule starts a stopped machine once in each period. If the daemon was down for
// several periods, the machine is started once. A machine that is running or suspended,
// or that never ran, is not started.
func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		ctx := t.Context()
		m := h.place(run("exit", "0"), scheduled())
		runs := h.place(run("run"), scheduled())
		suspended := h.place(run("run"), scheduled())
		h.must(h.machines.Suspend(ctx, suspended.ID, fabric.MachineAction{}))
		prepared := h.place(run("exit", "0"), scheduled(), func(o *bourse.Order) { o.SkipLaunch = true })
		time.Sleep(3*time.Hour + 6*time.Minute)
		if got := byClock(h.get(m.ID)); len(got) != 3 || got[1].Sub(got[0]).Round(time.Second) != time.Hour {
			t.Errorf("started at %v, want once an hour: %v", got, story(h.get(m.ID)))
		}
		h.crash()
		time.Sleep(5 * time.Hour)
		h.start(nil)
		time.Sleep(time.Minute)
		if got := byClock(h.get(m.ID)); len(got) != 4 {
			t.Errorf("started %d times, want one more after five hours without the daemon", len(got))
		}
		time.Sleep(time.Hour)
		if got := byClock(h.get(m.ID)); len(got) != 5 {
			t.Errorf("started %d times, want one more in the hour after", len(got))
		}
		for id, want := range map[bourse.MachineID]bourse.State{runs.ID: bourse.StateStarted, suspended.ID: bourse.StateSuspended, prepared.ID: bourse.StateStopped} {
			if now := h.get(id); now.State != want || len(byClock(now)) > 0 || now.Due == nil || now.Due.At.Before(time.Now()) {
				t.Errorf("machine is %s, due %+v, started %v; want %s and a later time", now.State, now.Due, byClock(now), want)
			}
		}
		h.must(h.update(ctx, m.ID, func(c *bourse.Config) { c.Schedule = "" }))
		h.must(h.machines.Stop(ctx, runs.ID, fabric.MachineAction{}))
		h.must(h.machines.Destroy(ctx, runs.ID, fabric.MachineAction{Force: true}))
		time.Sleep(30 * time.Minute) // the record of a destroyed machine can be read for an hour
		if now := h.get(runs.ID); now.Due != nil {
			t.Errorf("a destroyed machine is due %+v", now.Due)
		}
		time.Sleep(2 * time.Hour)
		for _, id := range []bourse.MachineID{m.ID} {
			if now := h.get(id); now.Due != nil || now.Boot.Exit == nil {
				t.Errorf("machine is %s, due %+v, want it not to be started", now.State, now.Due)
			}
		}
		h.verify()
	})
}

// A schedule does not start a machine while someone holds its lease, but does so once
// the lease ends.
func TestScheduleWaitsForALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		m := h.place(run("exit", "0"), scheduled())
		time.Sleep(59 * time.Minute)
		if _, err := h.machines.Lease(t.Context(), m.ID, fabric.LeaseRequest{TTL: 20 * time.Minute}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Minute)
		if got := byClock(h.get(m.ID)); len(got) > 0 {
			t.Errorf("started at %v while the machine was leased", got)
		}
		time.Sleep(10 * time.Minute)
		if got := byClock(h.get(m.ID)); len(got) != 1 {
			t.Errorf("started at %v, want once after the lease", got)
		}
	})
}

// The daemon dies before and after each commit during a few hours of a schedule. The
// machine is still started exactly once in each hour.
func TestScheduleCrashes(t *testing.T) {
	day := func(h *host) (m bourse.Machine, err error) {
		fill, _, err := h.claim(h.t.Context(), &bourse.Claim{Order: *newOrder(h.t, run("exit", "0"), scheduled())})
		if err != nil || fill == nil {
			return m, errCrash
		}
		time.Sleep(2*time.Hour + 6*time.Minute)
		return fill.Machine, nil
	}
	var commits uint64
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		h.crash()
		h.start(func(_ store.FaultStage, n uint64) error { commits = n; return nil })
		if _, err := day(h); err != nil {
			t.Fatal(err)
		}
		h.crash()
	})
	t.Logf("%d commits", commits)
	for n := uint64(2); n <= commits; n++ {
		for _, stage := range []store.FaultStage{store.FaultBefore, store.FaultAfter} {
			t.Run(fmt.Sprintf("commit=%d/stage=%d", n, stage), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newHost(t, nil)
					h.crash()
					begun := time.Now()
					if h.tryStart(crashAt(stage, n)) == nil {
						_, _ = day(h)
						h.crash()
					}
					h.start(nil)
					defer h.crash()
					time.Sleep(4*time.Hour + 6*time.Minute - time.Since(begun))
					all, err := h.machines.List(t.Context(), nil, func(*bourse.Machine) bool { return true })
					if err != nil || len(all) > 1 {
						t.Fatalf("got %v, %v", all, err)
					}
					for _, m := range all {
						hours := map[int]int{}
						for _, at := range byClock(h.get(m.ID)) {
							hours[int(at.Sub(m.CreatedAt)/time.Hour)]++
						}
						if len(hours) < 3 || len(hours) > 4 || slices.Max([]int{hours[1], hours[2], hours[3], hours[4]}) > 1 {
							t.Errorf("starts by the hour: %v: %v", hours, story(h.get(m.ID)))
						}
					}
					h.verify()
				})
			})
		}
	}
}
