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
)

// Wait implements driver.Driver. It outlives containerd: nothing has ended
// because no one can be asked.
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

// watch waits for a task's end, whatever becomes of containerd meanwhile, and
// then finishes it. It returns when the driver is closed, too.
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

// awaitExit asks containerd until it says how a task has ended.
func (d *Driver) awaitExit(t *task) (bourse.Exit, error) {
	missing := 0
	for pause := retryFirst; ; pause = min(2*pause, retryMost) {
		exit, err := d.askExit(t)
		if d.ctx.Err() != nil {
			return bourse.Exit{}, context.Cause(d.ctx)
		}
		if err == nil {
			return exit, nil
		}
		if isNotFound(err) {
			// A containerd that is going down loses its shims first and may
			// say so of tasks that run. Believe it when the shim is gone, or
			// when it still says so a while later.
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

// lostAfter is how often containerd has to deny a task whose shim runs: for
// about two seconds.
const lostAfter = 8

// lostExit is the exit of a task whose shim is gone.
func lostExit(at time.Time) bourse.Exit {
	return bourse.Exit{Code: -1, Error: "lost: the container's shim has ended, and with it what it knew", At: at.UTC()}
}

// askExit waits for a task's end as long as its containerd does.
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
	// Whatever ended the wait, what counts is what containerd says now.
	return d.askState(ctx, c, t)
}

// askState returns a task's exit when it has one. isNotFound tells that there is
// no such task, another error that it runs or cannot be asked.
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

// exitFrom reads what a shim says of an end. It says 128+n for signal n as for
// a program that exits with that number: the former is meant nearly always.
func exitFrom(status uint32, at *timestamppb.Timestamp) bourse.Exit {
	const firstRealtime = 32
	exit := bourse.Exit{Code: int(status & 0xff), At: at.AsTime().UTC()}
	if n := exit.Code - 128; n > 0 && n < firstRealtime {
		exit.Code, exit.Signal = -1, n
	}
	return exit
}

// finish makes an end known: first nothing of the container may run, and its
// output has to be in the log. Then the exit is recorded with the container,
// which outlives us and containerd: true, and the task and its shim can go.
func (d *Driver) finish(t *task, exit bourse.Exit) (recorded bool) {
	path := cgroup.PathOf(d.layout.mark(), t.container)
	// Only a lost container has processes left: the others' ended with their
	// pid namespace.
	d.groups.Kill(path, killGrace)
	exit.OOMKilled = exit.Failed() && d.groups.OOMKills(path) > 0
	d.drain(t)
	recorded = d.recordExit(t, exit)
	d.tasks.end(t, exit)
	return recorded
}

// drain has the keeper finish a task's output.
func (d *Driver) drain(t *task) {
	ctx, cancel := context.WithTimeout(d.ctx, doneTimeout)
	defer cancel()
	for pause := retryFirst; ; pause = min(2*pause, retryMost) {
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
				d.cfg.Log.Warn("an exit is told before its output is known to be in the log", "machine", t.id.Machine, "boot", t.id.Boot, "err", err)
			}
			return
		}
	}
}

// recordExit writes an exit into the container's record. It is tried once:
// while there is a task, containerd knows the exit itself.
func (d *Driver) recordExit(t *task, exit bourse.Exit) bool {
	label, err := exitLabel(exit)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(d.ctx, removeTimeout)
	defer cancel()
	err = d.once(ctx, func(ctx context.Context, c *containerd.Client) error {
		return setLabel(ctx, c, t.container, labelExit, label)
	})
	if err != nil && d.ctx.Err() == nil {
		d.cfg.Log.Warn("an exit is not recorded with its container", "machine", t.id.Machine, "boot", t.id.Boot, "err", err)
	}
	return err == nil
}

// release deletes the task of an ended container, and with it its shim and
// mounts. If that fails, Forget does it.
func (d *Driver) release(t *task) {
	ctx, cancel := context.WithTimeout(d.ctx, removeTimeout)
	defer cancel()
	err := d.once(ctx, func(ctx context.Context, c *containerd.Client) error {
		return deleteTask(ctx, c, t.container)
	})
	if err != nil && d.ctx.Err() == nil {
		d.cfg.Log.Warn("the task of an ended container is not deleted yet", "machine", t.id.Machine, "boot", t.id.Boot, "err", err)
	}
}
