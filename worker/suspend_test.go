package worker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/drivertest"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/worker/machines"
)

// A suspended machine keeps its program, its boot and its resources, even if the daemon
// restarts. Starting it resumes the same program.
func TestSuspendAndResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		ctx := t.Context()
		m := h.place(run("run"))
		suspended := h.must(h.machines.Suspend(ctx, m.ID, fabric.MachineAction{}))
		if suspended.State != bourse.StateSuspended || suspended.Boot.PID != m.Boot.PID || !cmp.Equal(suspended.Takes, m.Takes) {
			t.Errorf("suspended as %+v, takes %v, want the same program and all of %v", suspended.Boot, suspended.Takes, m.Takes)
		}
		if again := h.must(h.machines.Suspend(ctx, m.ID, fabric.MachineAction{})); again.State != bourse.StateSuspended {
			t.Errorf("after a second suspend: %s", again.State)
		}
		if _, err := h.machines.Usage(ctx, m.ID); err != nil {
			t.Errorf("usage of a suspended machine: %v", err)
		}
		h.crash()
		h.start(nil)
		if now := h.get(m.ID); now.State != bourse.StateSuspended || !slices.Contains(h.frozen(), machines.TaskOf(&now)) {
			t.Errorf("after the daemon's restart: %s, frozen tasks: %v", now.State, h.frozen())
		}
		resumed := h.must(h.machines.Start(ctx, m.ID, fabric.MachineAction{}))
		if resumed.State != bourse.StateStarted || resumed.Boot.PID != m.Boot.PID || resumed.Boot.Number != 1 || len(h.frozen()) != 0 {
			t.Errorf("resumed as %s %+v, frozen tasks: %v; want the same program", resumed.State, resumed.Boot, h.frozen())
		}
		h.must(h.machines.Suspend(ctx, m.ID, fabric.MachineAction{}))
		if again := h.must(h.machines.Restart(ctx, m.ID, fabric.MachineAction{})); again.State != bourse.StateStarted || again.Boot.PID != m.Boot.PID {
			t.Errorf("restart of a suspended machine: %s %+v, want its program resumed", again.State, again.Boot)
		}
		want := []string{
			"launch/created", "start/started", "suspend/suspending", "suspend/suspended", "resume/started",
			"suspend/suspending", "suspend/suspended", "resume/started",
		}
		if diff := cmp.Diff(want, story(h.get(m.ID))); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		h.verify()
	})
}

// When a suspended machine is stopped, its program is killed. When it is destroyed, nothing is left behind.
func TestEndOfASuspendedMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		ctx := t.Context()
		m, other := h.place(run("run"), restart(bourse.RestartAlways, 3)), h.place(run("ignore", "run"))
		third := h.place(run("run"))
		for _, id := range []bourse.MachineID{m.ID, other.ID, third.ID} {
			h.must(h.machines.Suspend(ctx, id, fabric.MachineAction{}))
		}
		h.must(h.machines.Stop(ctx, m.ID, fabric.MachineAction{Timeout: bourse.Duration(time.Minute)}))
		stopped := h.reaches(m.ID, bourse.StateStopped)
		if e := stopped.LastEvents[0].Exit; e == nil || !e.RequestedStop || e.Signal != bourse.Signal("SIGKILL").Number() {
			t.Errorf("exit event %+v, want a requested stop by SIGKILL", e)
		}
		if next := h.must(h.update(ctx, third.ID, env("VERSION", "2"))); next.Boot.Number != 2 || next.State != bourse.StateStarted || next.Boot.Frozen {
			t.Errorf("after an update: %s, %+v; want the new version", next.State, next.Boot)
		}
		if cold := h.must(h.machines.Start(ctx, m.ID, fabric.MachineAction{})); cold.Boot.Number != 2 || cold.Boot.Frozen {
			t.Errorf("started as %+v, want a second boot", cold.Boot)
		}
		if gone := h.must(h.machines.Destroy(ctx, other.ID, fabric.MachineAction{})); gone.State != bourse.StateDestroyed || len(h.frozen()) > 0 {
			t.Errorf("after the destruction: %s, frozen tasks: %v", gone.State, h.frozen())
		}
		h.verify()
	})
}

// If the host restarts, suspended programs are lost. Their machines are stopped, their
// policies do not restart them, and an event gives the reason.
func TestSuspendedMachineIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		m := h.place(run("run"), restart(bourse.RestartAlways, 3))
		h.must(h.machines.Suspend(t.Context(), m.ID, fabric.MachineAction{}))
		h.crash()
		h.mem.Lose()
		h.start(nil)
		stopped := h.reaches(m.ID, bourse.StateStopped)
		if e := stopped.LastEvents[0]; e.Exit == nil || e.Exit.Error == "" || e.Exit.Restarting || e.From != bourse.StateSuspended {
			t.Errorf("event %+v, want an exit from suspended, with its cause", e)
		}
		time.Sleep(time.Hour) // virtual time
		if now := h.get(m.ID); now.State != bourse.StateStopped {
			t.Errorf("machine is %s, want it not to be started", now.State)
		}
		h.verify()
	})
}

// If a suspended program cannot be resumed, the start boots the machine again, and an event
// contains the lost program's exit.
func TestMachineThatCannotBeResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		m := h.place(run("run"), restart(bourse.RestartAlways, 3))
		h.must(h.machines.Suspend(t.Context(), m.ID, fabric.MachineAction{}))
		h.mem.SetHooks(drivertest.Hooks{Before: func(_ context.Context, c drivertest.Call) error {
			if c.Op == "Freeze" {
				h.mem.End(c.ID, bourse.Exit{Code: 125})
			}
			return nil
		}})
		again := h.must(h.machines.Start(t.Context(), m.ID, fabric.MachineAction{}))
		if again.State != bourse.StateStarted || again.Boot.Number != 2 || again.Boot.Frozen {
			t.Errorf("started as %s %+v, want a second boot", again.State, again.Boot)
		}
		want := []string{
			"launch/created", "start/started", "suspend/suspending", "suspend/suspended", "suspend/suspended", "exit/stopped", "start/started",
		}
		if diff := cmp.Diff(want, story(h.get(m.ID))); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		h.verify()
	})
}

// If a host does not support freezing, the error says so. If freezing fails, the
// machine keeps running.
func TestMachineThatCannotBeSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		m := h.place(run("run"))
		h.mem.SetHooks(drivertest.Hooks{Before: func(_ context.Context, c drivertest.Call) error {
			if c.Op == "Freeze" {
				return bourse.Errorf(bourse.CodeUnavailable, "stuck")
			}
			return nil
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := h.machines.Suspend(ctx, m.ID, fabric.MachineAction{}); err == nil {
			t.Error("suspend succeeded although the driver fails")
		}
		h.mem.SetHooks(drivertest.Hooks{})
		if now := h.reaches(m.ID, bourse.StateStarted); now.Boot.PID != m.Boot.PID || len(h.frozen()) > 0 {
			t.Errorf("machine is %s, frozen tasks: %v", now.State, h.frozen())
		}
		h.crash()
		h.mem.SetLabels(map[string]string{"cgroup": "none"})
		h.start(nil)
		_, err := h.machines.Suspend(t.Context(), m.ID, fabric.MachineAction{})
		if bourse.CodeOf(err) != bourse.CodeFailedPrecondition || !strings.Contains(bourse.MessageOf(err), "stop it instead") {
			t.Errorf("got %v, want an error about the host", err)
		}
		h.verify()
	})
}

// After many concurrent operations on a machine, it is in a settled state, and its
// program is frozen if and only if the machine is suspended.
func TestSuspendAmongOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		m := h.place(run("sleep", "50ms", "run"), restart(bourse.RestartAlways, 10))
		var all sync.WaitGroup
		for range 3 {
			for _, do := range []func(context.Context, bourse.MachineID, fabric.MachineAction) (fabric.ActReply, error){
				h.machines.Suspend, h.machines.Start, h.machines.Stop, h.machines.Restart,
				func(ctx context.Context, id bourse.MachineID, _ fabric.MachineAction) (fabric.ActReply, error) {
					return h.machines.Signal(ctx, id, fabric.MachineAction{Signal: "SIGTERM"})
				},
			} {
				all.Go(func() {
					_, err := do(t.Context(), m.ID, fabric.MachineAction{Timeout: bourse.Duration(time.Second)})
					if code := bourse.CodeOf(err); err != nil && code != bourse.CodeFailedPrecondition && code != bourse.CodeUnavailable && !errors.Is(err, context.Canceled) {
						t.Errorf("got %v", err)
					}
				})
			}
		}
		all.Wait()
		time.Sleep(10 * time.Minute) // virtual time
		now := h.get(m.ID)
		if !now.State.Settled() || slices.Contains(h.frozen(), machines.TaskOf(&now)) != (now.State == bourse.StateSuspended) {
			t.Errorf("machine is %s, frozen tasks: %v: %v", now.State, h.frozen(), story(now))
		}
		if ran := slices.Contains(h.tasks(), driver.TaskID{Machine: m.ID, Boot: now.Boot.Number}); ran != (now.Boot.Exit == nil) {
			t.Errorf("program running: %t, boot %+v", ran, now.Boot)
		}
		h.verify()
	})
}
