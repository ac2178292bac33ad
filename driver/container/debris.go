package container

import (
	"context"
	"time"

	containerd "github.com/containerd/containerd/v2/client"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
)

// What a failed start leaves while containerd is away, and what containerd
// still finishes for a daemon that has died, is debris: no caller knows of it.
// It is removed as soon as that is possible.

// debris is what is known of it. Driver.mu guards it.
type debris struct {
	tasks    map[driver.TaskID]bool // of which something has to be removed yet
	cleaning bool                   // a goroutine does it
}

// removeLater notes debris, and has it removed.
func (d *Driver) removeLater(id driver.TaskID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.debris.tasks[id] = true
	if !d.debris.cleaning && d.ctx.Err() == nil {
		d.debris.cleaning = true
		d.work.Go(d.clean)
	}
}

// clean removes debris until there is none.
func (d *Driver) clean() {
	for pause := retryFirst; ; pause = min(2*pause, retryMost) {
		for _, id := range d.debrisOf("") {
			_ = d.removeLeftover(d.ctx, id) // it is tried again
		}
		d.mu.Lock()
		if len(d.debris.tasks) == 0 || d.ctx.Err() != nil {
			d.debris.cleaning = false
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

// debrisOf lists a machine's debris, or all.
func (d *Driver) debrisOf(machine bourse.MachineID) []driver.TaskID {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []driver.TaskID
	for id := range d.debris.tasks {
		if machine == "" || id.Machine == machine {
			out = append(out, id)
		}
	}
	return out
}

// removeDebris removes a machine's debris.
func (d *Driver) removeDebris(ctx context.Context, machine bourse.MachineID) error {
	for _, id := range d.debrisOf(machine) {
		if err := d.removeLeftover(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// purge removes all that there is of a task that no caller knows of, also what
// containerd does not know of, and has the keeper forget it.
func (d *Driver) purge(ctx context.Context, c *containerd.Client, id driver.TaskID) error {
	if err := d.remove(ctx, c, id); err != nil {
		return err
	}
	d.endShims(id)
	d.groups.RemoveSoon(cgroup.PathOf(d.layout.mark(), d.layout.container(id)))
	return d.cfg.Keeper.Done(ctx, d.layout.source(id, false)) // which goes by the id
}

// removeLeftover removes what there is of a task, unless the table has it:
// then it is a caller's. A start of the same task waits meanwhile, and fails.
func (d *Driver) removeLeftover(ctx context.Context, id driver.TaskID) error {
	t := d.newTask(id)
	if !d.tasks.clear(t) {
		d.forgetDebris(id)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	err := d.once(ctx, func(ctx context.Context, c *containerd.Client) error { return d.purge(ctx, c, id) })
	if err == nil {
		d.forgetDebris(id)
	}
	d.tasks.settle(t, driver.Status{}, bourse.Errorf(bourse.CodeUnavailable, "what is left of an earlier start of %s/%d was just being removed", id.Machine, id.Boot))
	return err
}

func (d *Driver) forgetDebris(id driver.TaskID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.debris.tasks, id)
}

// sweeps are the times after Recover at which the driver looks again for what
// containerd has made for a daemon that died.
var sweeps = []time.Duration{time.Second, 5 * time.Second, 30 * time.Second}

// sweepLater removes what no caller knows of and came after Recover had looked.
func (d *Driver) sweepLater() {
	for _, after := range sweeps {
		timer := time.NewTimer(after)
		select {
		case <-timer.C:
		case <-d.ctx.Done():
			timer.Stop()
			return
		}
		err := d.once(d.ctx, func(ctx context.Context, c *containerd.Client) error {
			found, err := d.survey(ctx, c)
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
			d.cfg.Log.Warn("leftovers were not looked for", "err", err)
		}
	}
}
