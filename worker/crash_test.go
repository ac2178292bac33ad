package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/machines"
)

var errCrash = errors.New("crash")

// crashAt returns a fault that fails the store at one stage of its n-th commit. The
// store stays failed from then on.
func crashAt(stage store.FaultStage, n uint64) func(store.FaultStage, uint64) error {
	return func(s store.FaultStage, commit uint64) error {
		if s == stage && commit == n {
			return errCrash
		}
		return nil
	}
}

// diary records what callers were told before a crash. All of it must still be true
// afterwards.
type diary struct {
	started   map[bourse.MachineID]int // process ids of machines that were reported as started
	stopped   map[bourse.MachineID]bool
	suspended map[bourse.MachineID]bool
	destroyed map[bourse.MachineID]bool
	canceled  map[bourse.OrderID]bool
	refused   map[bourse.OrderID]bool
	events    map[bourse.MachineID][]bourse.EventID
	ports     map[bourse.MachineID][]int // each machine's port, every time that it was reported
	versions  map[bourse.MachineID]bourse.InstanceID
}

// lifetime runs a scenario that uses every operation. It stops at the first error, like
// a caller whose worker has died.
func (h *host) lifetime(d *diary) error {
	ctx, cancel := context.WithTimeout(h.t.Context(), 10*time.Second) // a caller gives up on a dead worker after this time
	defer cancel()
	if err := h.prepareRig(ctx, d); err != nil {
		return err
	}
	claim := func(change ...func(*bourse.Order)) (bourse.Machine, error) {
		order := newOrder(h.t, append(change, h.rig.dress)...)
		fill, refusal, err := h.claim(ctx, &bourse.Claim{Order: *order})
		if err != nil {
			return bourse.Machine{}, err
		}
		if refusal != nil {
			if refusal.Reason == bourse.RefusedUnavailable {
				return bourse.Machine{}, errors.New(refusal.Detail)
			}
			d.refused[order.ID] = true
			return bourse.Machine{}, nil
		}
		if fill.Machine.State == bourse.StateStarted {
			d.note(&fill.Machine)
		}
		return fill.Machine, nil
	}
	long, err := claim(run("run"))
	if err != nil {
		return err
	}
	if _, err := claim(run("exit", "3")); err != nil {
		return err
	}
	if _, err := claim(run("sleep", "1s", "exit", "4"), restart(bourse.RestartOnFailure, 2)); err != nil {
		return err
	}
	if _, err := claim(run("missing")); err != nil {
		return err
	}
	prepared, err := claim(run("run"), func(o *bourse.Order) { o.SkipLaunch = true })
	if err != nil {
		return err
	}
	doomed, err := claim(run("run"), func(o *bourse.Order) { o.Config.AutoDestroy = true })
	if err != nil {
		return err
	}
	lasting, err := claim(run("run"))
	if err != nil {
		return err
	}
	suspend := func(id bourse.MachineID) error {
		_, err := h.machines.Suspend(ctx, id, fabric.MachineAction{})
		if bourse.CodeOf(err) == bourse.CodeFailedPrecondition {
			return nil // a poller's machine cannot be suspended
		}
		if err == nil {
			d.suspended[id] = true
		}
		return err
	}
	for _, step := range []func() error{
		func() error { return d.verb(h.machines.Start(ctx, prepared.ID, fabric.MachineAction{})) },
		func() error { return d.verb(h.machines.Restart(ctx, long.ID, fabric.MachineAction{})) },
		func() error { return d.verb(h.update(ctx, long.ID, env("VERSION", "2"))) },
		func() error { return d.verb(h.update(ctx, prepared.ID, metadata("note", "unnoticed"))) },
		func() error { return d.verb(h.update(ctx, prepared.ID, h.rig.newImage)) },
		func() error { return suspend(long.ID) },
		func() error { return d.verb(h.machines.Start(ctx, long.ID, fabric.MachineAction{})) },
		func() error { return suspend(lasting.ID) },
		func() error { return suspend(prepared.ID) },
		func() error {
			_, err := h.machines.Stop(ctx, long.ID, fabric.MachineAction{})
			if err == nil {
				delete(d.started, long.ID)
				d.stopped[long.ID] = true
			}
			return err
		},
		func() error {
			_, err := h.cancel(ctx, doomed.Order)
			if err == nil {
				delete(d.started, doomed.ID)
				d.canceled[doomed.Order], d.destroyed[doomed.ID] = true, true
			}
			return err
		},
		func() error {
			_, err := h.machines.Destroy(ctx, prepared.ID, fabric.MachineAction{Force: true})
			if err == nil {
				delete(d.started, prepared.ID)
				d.destroyed[prepared.ID] = true
			}
			return err
		},
	} {
		// While an operation is in progress, a crash may leave the machine in the state
		// before it or after it.
		d.uncertain(long.ID, prepared.ID, doomed.ID)
		if !d.suspended[lasting.ID] {
			d.uncertain(lasting.ID)
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func newDiary() *diary {
	return &diary{
		started: map[bourse.MachineID]int{}, stopped: map[bourse.MachineID]bool{}, suspended: map[bourse.MachineID]bool{}, destroyed: map[bourse.MachineID]bool{},
		canceled: map[bourse.OrderID]bool{}, refused: map[bourse.OrderID]bool{}, events: map[bourse.MachineID][]bourse.EventID{},
		ports: map[bourse.MachineID][]int{}, versions: map[bourse.MachineID]bourse.InstanceID{},
	}
}

func (d *diary) note(m *bourse.Machine) {
	d.started[m.ID], d.versions[m.ID] = m.Boot.PID, m.Instance
	d.ports[m.ID] = append(d.ports[m.ID], m.Boot.Port)
	d.events[m.ID] = nil
	for _, e := range m.LastEvents {
		d.events[m.ID] = append(d.events[m.ID], e.ID)
	}
}

func (d *diary) verb(reply fabric.ActReply, err error) error {
	if err == nil {
		d.note(&reply.Machine)
	}
	return err
}

func (d *diary) uncertain(ids ...bourse.MachineID) {
	for _, id := range ids {
		delete(d.started, id)
		delete(d.versions, id)
		delete(d.suspended, id)
	}
}

// Invariants 5 and 6: the daemon dies before and after every commit of a scenario that uses every operation. After each
// restart, every running task has a record, and everything that callers were told is still true. The restart does not
// stop any task or start one twice, each exit is reported once, and every run ends.
func TestInvariant5IntentBeforeEffect(t *testing.T) { enumerateCrashes(t, nil, checkIntent) }

// See TestInvariant5IntentBeforeEffect.
func TestInvariant6ABounceIsInvisible(t *testing.T) { enumerateCrashes(t, nil, checkBounce) }

func enumerateCrashes(t *testing.T, rig func() *rig, check func(*host, *diary)) {
	enumerateAbsences(t, rig, 0, check)
}

// enumerateAbsences is like enumerateCrashes, but waits before each restart.
func enumerateAbsences(t *testing.T, rig func() *rig, away time.Duration, check func(*host, *diary)) {
	commits := countCommits(t, rig)
	t.Logf("%d commits", commits)
	for n := uint64(2); n <= commits; n++ { // the first commit creates the store
		for _, stage := range []store.FaultStage{store.FaultBefore, store.FaultAfter} {
			t.Run(fmt.Sprintf("commit=%d/stage=%d", n, stage), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newRigged(t, rig)
					d := newDiary()
					if h.tryStart(crashAt(stage, n)) == nil {
						_ = h.lifetime(d) // the crash ends the scenario early
						h.crash()
					}
					time.Sleep(away) // virtual time
					running := h.tasks()
					h.start(nil)
					h.checkRunning(running)
					check(h, d)
					h.verify()
					h.crash()
				})
			})
		}
	}
}

// countCommits returns the number of commits that the scenario makes if nothing fails.
func countCommits(t *testing.T, rig func() *rig) (commits uint64) {
	synctest.Test(t, func(t *testing.T) {
		h := newRigged(t, rig)
		h.start(func(_ store.FaultStage, n uint64) error { commits = n; return nil })
		if err := h.lifetime(newDiary()); err != nil {
			t.Fatalf("the scenario fails even without a crash: %v", err)
		}
		h.crash()
	})
	if commits < 20 {
		t.Fatalf("the scenario makes only %d commits", commits)
	}
	return commits
}

// checkRunning checks that the restart has not stopped any recorded task that should be running.
func (h *host) checkRunning(before []driver.TaskID) {
	h.t.Helper()
	now := h.tasks()
	for _, id := range before {
		m, err := h.state.Machine(h.t.Context(), id.Machine)
		if err != nil {
			h.t.Errorf("task %v ran without a record", id)
			continue
		}
		if m.State == bourse.StateStarted && m.Boot.Number == id.Boot && !slices.Contains(now, id) {
			h.t.Errorf("task %v of a started machine no longer runs", id)
		}
	}
}

func checkIntent(h *host, _ *diary) {
	h.t.Helper()
	time.Sleep(10 * time.Minute) // virtual time: by now, every backoff and run has ended
	recorded := map[bourse.MachineID]bourse.Machine{}
	all, err := h.machines.List(h.t.Context(), nil, func(*bourse.Machine) bool { return true })
	if err != nil {
		h.t.Fatal(err)
	}
	for _, m := range all {
		recorded[m.ID] = m
		if m.Next != nil {
			h.t.Errorf("machine %s is %s and waits for version %s forever: %v", m.ID, m.State, m.Next.Instance, story(m))
		}
		if !m.State.Settled() {
			h.t.Errorf("machine %s is %s forever: %v", m.ID, m.State, story(m))
		}
		if m.State == bourse.StateStarted && !slices.Contains(h.tasks(), machines.TaskOf(&m)) {
			h.t.Errorf("machine %s is started, but its task does not run: %v", m.ID, story(m))
		}
		if m.State != bourse.StateDestroyed && h.canceledOrder(m.Order) {
			h.t.Errorf("machine %s of a canceled order is %s: %v", m.ID, m.State, story(m))
		}
	}
	for _, id := range h.tasks() {
		m := recorded[id.Machine]
		if m.State != bourse.StateStarted && m.State != bourse.StateSuspended || m.Boot.Number != id.Boot {
			h.t.Errorf("task %v runs, its machine is %q at boot %d", id, m.State, m.Boot.Number)
		}
		if frozen := slices.Contains(h.frozen(), id); frozen != (m.State == bourse.StateSuspended) {
			h.t.Errorf("task %v, frozen: %t, its machine is %q: %v", id, frozen, m.State, story(m))
		}
	}
	for _, id := range h.kept() {
		if m := recorded[id]; m.State == "" || m.State == bourse.StateDestroyed {
			h.t.Errorf("the host still has machine %s, which is %q", id, m.State)
		}
	}
	h.checkRig(all)
	runs, err := h.listRuns(false)
	if err != nil || len(runs) != 0 {
		h.t.Errorf("unfinished runs: %+v, %v", runs, err)
	}
}

func (h *host) canceledOrder(id bourse.OrderID) bool {
	h.t.Helper()
	var canceled bool
	if err := h.store.View(func(tx *store.Tx) error {
		rec, _, err := tx.Order(id)
		canceled = rec.Canceled
		return err
	}); err != nil {
		h.t.Fatal(err)
	}
	return canceled
}

func checkBounce(h *host, d *diary) {
	h.t.Helper()
	for id, pid := range d.started {
		m := h.get(id)
		if running := m.State == bourse.StateStarted && m.Boot.PID == pid; !running && m.Boot.Exit == nil {
			if m = h.awaitBoot(id, pid); m.Boot.Exit == nil && m.Boot.PID != pid {
				h.t.Errorf("machine %s was reported as started with pid %d, is %s with pid %d: %v", id, pid, m.State, m.Boot.PID, story(m))
			}
		}
	}
	time.Sleep(10 * time.Minute)
	for id, reported := range d.events {
		have := map[bourse.EventID]int{}
		for _, e := range h.get(id).LastEvents {
			have[e.ID]++
		}
		for _, e := range reported {
			if have[e] != 1 {
				h.t.Errorf("machine %s: event %s was reported and is recorded %d times", id, e, have[e])
			}
		}
	}
	for id, reported := range d.versions {
		if m := h.get(id); m.Instance != reported {
			h.t.Errorf("machine %s was reported to have version %s and has %s", id, reported, m.Instance)
		}
	}
	for id, reported := range d.ports { // a machine keeps its port for life
		m := h.get(id)
		if m.State != bourse.StateDestroyed {
			reported = append(reported, m.Boot.Port)
		}
		if len(slices.Compact(reported)) != 1 {
			h.t.Errorf("machine %s had different ports: %v", id, reported)
		}
	}
	for id := range d.suspended {
		if m := h.get(id); m.State != bourse.StateSuspended || !slices.Contains(h.frozen(), machines.TaskOf(&m)) {
			h.t.Errorf("machine %s was reported as suspended and is %s; frozen tasks: %v: %v", id, m.State, h.frozen(), story(m))
		}
	}
	for id := range d.stopped {
		if m := h.get(id); m.State != bourse.StateStopped {
			h.t.Errorf("machine %s was reported as stopping and is %s", id, m.State)
		}
	}
	for id := range d.destroyed {
		if m := h.get(id); m.State != bourse.StateDestroyed {
			h.t.Errorf("machine %s was reported as destroyed and is %s", id, m.State)
		}
	}
	for id := range d.canceled {
		if _, err := h.decision(h.t.Context(), id); err != nil {
			h.t.Errorf("canceled order %s: %v", id, err)
		}
	}
	h.checkExits()
}

// awaitBoot waits until the resumed start has adopted the task.
func (h *host) awaitBoot(id bourse.MachineID, pid int) bourse.Machine {
	h.t.Helper()
	m, err := h.state.AwaitMachine(h.t.Context(), id, func(m *bourse.Machine) bool { return m.Boot.PID == pid || m.Boot.Exit != nil })
	if err != nil {
		h.t.Fatal(err)
	}
	return m
}

// checkExits checks that exactly one exit was reported for each start that has ended.
func (h *host) checkExits() {
	h.t.Helper()
	all, err := h.machines.List(h.t.Context(), nil, func(*bourse.Machine) bool { return true })
	if err != nil {
		h.t.Fatal(err)
	}
	for _, m := range all {
		starts, exits := 0, 0
		for _, e := range m.LastEvents {
			if e.Type == bourse.EventStart {
				starts++
			}
			if e.Type == bourse.EventExit && e.Exit.Error == "" {
				exits++
			}
		}
		running := 0
		if m.State == bourse.StateStarted || m.State == bourse.StateSuspended {
			running = 1
		}
		if starts != exits+running {
			h.t.Errorf("machine %s: %d starts, %d exits, %d running: %v", m.ID, starts, exits, running, story(m))
		}
	}
}
