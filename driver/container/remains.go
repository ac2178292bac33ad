package container

import (
	"context"
	"time"

	containerd "github.com/containerd/containerd/v2/client"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
)

// Remains are objects in containerd and on the host that belong to tasks that no caller knows about. A start that fails
// while containerd is unavailable leaves such objects behind. They also appear if containerd finishes creating an
// object after the daemon that requested it has died. The driver removes them as soon as possible.

// remains lists the tasks that are known to have leftover objects. Driver.mu guards it.
type remains struct {
	tasks    map[driver.TaskID]bool // tasks whose leftover objects must be removed
	cleaning bool                   // whether a goroutine is removing leftover objects
}

// removeLater records that a task has leftover objects, and starts removing them in the background.
func (d *Driver) removeLater(id driver.TaskID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remains.tasks[id] = true
	if !d.remains.cleaning && d.ctx.Err() == nil {
		d.remains.cleaning = true
		d.work.Go(d.clean)
	}
}

// clean removes leftover objects until none are known or the driver is closed.
func (d *Driver) clean() {
	for pause := minRetryDelay; ; pause = min(2*pause, maxRetryDelay) {
		for _, id := range d.remainsOf("") {
			_ = d.removeLeftover(d.ctx, id) // retried in the next round
		}
		d.mu.Lock()
		if len(d.remains.tasks) == 0 || d.ctx.Err() != nil {
			d.remains.cleaning = false
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-d.ctx.Done():
			timer.Stop()
		}
	}
}

// remainsOf returns the ids of a machine's tasks that are known to have leftover objects. If machine is empty, it
// returns such tasks of all machines.
func (d *Driver) remainsOf(machine bourse.MachineID) []driver.TaskID {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []driver.TaskID
	for id := range d.remains.tasks {
		if machine == "" || id.Machine == machine {
			out = append(out, id)
		}
	}
	return out
}

// removeRemains removes the known leftover objects of a machine's tasks.
func (d *Driver) removeRemains(ctx context.Context, machine bourse.MachineID) error {
	for _, id := range d.remainsOf(machine) {
		if err := d.removeLeftover(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// purge removes all objects of a task that no caller knows about, including objects that containerd has lost track of.
// It also makes the keeper stop reading the task's output.
func (d *Driver) purge(ctx context.Context, c *containerd.Client, id driver.TaskID) error {
	if err := d.remove(ctx, c, id); err != nil {
		return err
	}
	d.endShims(id)
	d.groups.RemoveSoon(cgroup.PathOf(d.layout.mark(), d.layout.container(id)))
	return d.cfg.Keeper.Done(ctx, d.layout.source(id, false)) // the keeper ignores tty here
}

// removeLeftover removes all leftover objects of a task, unless the task is in the table and therefore in use. A
// concurrent start of the same task waits and then fails.
func (d *Driver) removeLeftover(ctx context.Context, id driver.TaskID) error {
	t := d.newTask(id)
	if !d.tasks.clear(t) {
		d.forgetRemains(id)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	err := d.withClient(ctx, func(ctx context.Context, c *containerd.Client) error { return d.purge(ctx, c, id) })
	if err == nil {
		d.forgetRemains(id)
	}
	d.tasks.settle(t, driver.Status{}, bourse.Errorf(bourse.CodeUnavailable, "the leftovers of an earlier start of %s/%d were being removed; try again", id.Machine, id.Boot))
	return err
}

func (d *Driver) forgetRemains(id driver.TaskID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.remains.tasks, id)
}

// sweepDelays contains the pause before each search of sweepLater. Several searches are needed because, after Recover,
// containerd may still be creating objects that an earlier daemon requested.
var sweepDelays = []time.Duration{time.Second, 5 * time.Second, 30 * time.Second}

// sweepLater searches for leftover objects that appeared after Recover, and removes them.
func (d *Driver) sweepLater() {
	for _, after := range sweepDelays {
		timer := time.NewTimer(after)
		select {
		case <-timer.C:
		case <-d.ctx.Done():
			timer.Stop()
			return
		}
		err := d.withClient(d.ctx, func(ctx context.Context, c *containerd.Client) error {
			found, err := d.findObjects(ctx, c)
			if err != nil {
				return err
			}
			for id := range found.all() {
				if d.tasks.task(id) == nil {
					d.removeLater(id)
				}
			}
			return nil
		})
		if err != nil && d.ctx.Err() == nil {
			d.cfg.Log.Warn("search for leftovers failed", "err", err)
		}
	}
}
