package container

import (
	"context"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	containerd "github.com/containerd/containerd/v2/client"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
	"github.com/bourse-dev/bourse/driver/vm"
)

// Wait implements driver.Driver. It continues to wait while containerd is unavailable.
func (d *Driver) Wait(ctx context.Context, id driver.TaskID) (bourse.Exit, error) {
	t, err := d.find(ctx, id)
	if err != nil {
		return bourse.Exit{}, err
	}
	if err := d.await(ctx, t.done); err != nil {
		return bourse.Exit{}, err
	}
	return *d.tasks.status(t).Exit, nil
}

// watch waits until a task ends, and then finishes and releases it. It keeps waiting while
// containerd is unavailable, and returns early if the driver is closed.
func (d *Driver) watch(t *task) {
	defer close(t.gone)
	exit, err := d.awaitExit(t)
	if err != nil {
		return // the driver is closed
	}
	if d.finish(t, exit) {
		d.release(t)
	}
}

// awaitExit waits until containerd reports a task's exit, or the task is lost. It returns an error
// only if the driver is closed.
func (d *Driver) awaitExit(t *task) (bourse.Exit, error) {
	missing := 0
	for pause := minRetryDelay; ; pause = min(2*pause, maxRetryDelay) {
		exit, err := d.askExit(t)
		if d.ctx.Err() != nil {
			return bourse.Exit{}, context.Cause(d.ctx)
		}
		if err == nil {
			return exit, nil
		}
		if isNotFound(err) {
			// When containerd shuts down, it disconnects from its shims first, and may report
			// running tasks as missing. Accept such a report only if the shim no longer exists,
			// or if containerd repeats the report several times.
			if missing++; missing > lostAfter || len(d.layout.shims(d.cfg.Namespace)[t.id]) == 0 {
				return lostExit(time.Now()), nil
			}
		} else {
			missing = 0
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-d.ctx.Done():
			timer.Stop()
			return bourse.Exit{}, context.Cause(d.ctx)
		}
	}
}

// lostAfter is the number of consecutive reports of a missing task that the driver ignores while
// the task's shim is running. The retries take about two seconds.
const lostAfter = 8

// lostExit returns the exit to report for a task whose shim no longer exists.
func lostExit(at time.Time) bourse.Exit {
	return bourse.Exit{Code: -1, Error: "lost: the container's shim exited without reporting the program's exit status", At: at.UTC()}
}

// askExit waits until containerd reports a task's exit, or until the call fails.
func (d *Driver) askExit(t *task) (bourse.Exit, error) {
	ctx, c, release, err := d.connect(d.ctx)
	if err != nil {
		return bourse.Exit{}, err
	}
	defer release()
	r, err := c.TaskService().Wait(ctx, &tasks.WaitRequest{ContainerID: t.container})
	if err == nil {
		return exitFrom(r.ExitStatus, r.ExitedAt), nil
	}
	// The call may have failed after the task ended, so ask for the task's current state.
	return d.askState(ctx, c, t)
}

// askState returns a task's exit. If isNotFound(err) is true, the task does not exist in
// containerd. After any other error, the task is running or its state is unknown.
func (d *Driver) askState(ctx context.Context, c *containerd.Client, t *task) (bourse.Exit, error) {
	r, err := c.TaskService().Get(ctx, &tasks.GetRequest{ContainerID: t.container})
	if err != nil {
		return bourse.Exit{}, err
	}
	if p := r.Process; p.Status == tasktypes.Status_STOPPED && p.ExitedAt != nil {
		return exitFrom(p.ExitStatus, p.ExitedAt), nil
	}
	return bourse.Exit{}, bourse.Errorf(bourse.CodeUnavailable, "task %s is %s", t.container, r.Process.Status)
}

// exitFrom converts an exit status that a shim reported. A status of 128+n means either that signal
// n killed the program, or that the program exited with code 128+n. If n is the number of a signal,
// exitFrom assumes that the signal killed the program, which is almost always correct.
func exitFrom(status uint32, at *timestamppb.Timestamp) bourse.Exit {
	const firstRealtime = 32
	exit := bourse.Exit{Code: int(status & 0xff), At: at.AsTime().UTC()}
	if n := exit.Code - 128; n > 0 && n < firstRealtime {
		exit.Code, exit.Signal = -1, n
	}
	return exit
}

// finish kills the remaining processes of an ended task, waits until its output has been logged,
// stores its exit in the container's record, and then publishes the exit. The record survives this
// process and containerd. finish returns true if the exit was stored; the caller may then delete
// the task and its shim.
func (d *Driver) finish(t *task, exit bourse.Exit) (recorded bool) {
	path := cgroup.PathOf(d.layout.mark(), t.container)
	// Only a lost container can still have processes. The kernel has killed the processes of other
	// containers together with their pid namespaces.
	d.groups.Kill(path, killGrace)
	exit.OOMKilled = exit.Failed() && (d.groups.OOMKills(path) > 0 || t.vm && vm.OutOfMemory(d.layout.machine(t.id)))
	d.drain(t)
	recorded = d.recordExit(t, exit)
	d.tasks.end(t, exit)
	return recorded
}

// drain waits, for a limited time, until the keeper has logged all of a task's output.
func (d *Driver) drain(t *task) {
	ctx, cancel := context.WithTimeout(d.ctx, doneTimeout)
	defer cancel()
	for pause := minRetryDelay; ; pause = min(2*pause, maxRetryDelay) {
		err := d.cfg.Keeper.Done(ctx, d.layout.source(t.id, t.tty))
		if err == nil {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			if d.ctx.Err() == nil {
				d.cfg.Log.Warn("reporting exit before all output was logged", "machine", t.id.Machine, "boot", t.id.Boot, "err", err)
			}
			return
		}
	}
}

// recordExit stores an exit in the container's record. It tries only once, because containerd also
// keeps the exit status until the task is deleted.
func (d *Driver) recordExit(t *task, exit bourse.Exit) bool {
	label, err := exitLabel(exit)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(d.ctx, removeTimeout)
	defer cancel()
	err = d.withClient(ctx, func(ctx context.Context, c *containerd.Client) error {
		return setLabel(ctx, c, t.container, labelExit, label)
	})
	if err != nil && d.ctx.Err() == nil {
		d.cfg.Log.Warn("store exit in container's record failed", "machine", t.id.Machine, "boot", t.id.Boot, "err", err)
	}
	return err == nil
}

// release deletes an ended container's task from containerd, together with the shim and the mounts.
// If that fails, DiscardExit deletes them.
func (d *Driver) release(t *task) {
	ctx, cancel := context.WithTimeout(d.ctx, removeTimeout)
	defer cancel()
	err := d.withClient(ctx, func(ctx context.Context, c *containerd.Client) error {
		return deleteTask(ctx, c, t.container)
	})
	if err != nil && d.ctx.Err() == nil {
		d.cfg.Log.Warn("delete task of ended container failed", "machine", t.id.Machine, "boot", t.id.Boot, "err", err)
	}
}
