package pull

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Start implements driver.Driver. It waits until a poller has claimed the task. If no suitable
// poller is waiting, it returns CodeInsufficient. If ctx is done first, Start withdraws the offer,
// so that the task can no longer be claimed.
func (d *Driver) Start(ctx context.Context, task driver.Task) (driver.Status, error) {
	if err := validate(&task); err != nil {
		return driver.Status{}, err
	}
	d.mu.Lock()
	j, err := d.begin(&task)
	d.mu.Unlock()
	if err == nil {
		err = d.awaitClaim(ctx, j)
	}
	if err != nil {
		return driver.Status{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return j.status(), nil
}

func validate(t *driver.Task) error {
	if err := t.ID.Machine.Validate(); err != nil {
		return err
	}
	switch {
	case t.ID.Boot < 1:
		return bourse.Errorf(bourse.CodeInvalid, "machine %s: boot %d: boot numbers start at 1", t.ID.Machine, t.ID.Boot)
	case len(t.Command) == 0 || t.Command[0] == "":
		return bourse.Errorf(bourse.CodeInvalid, "image %s needs a command", bourse.ImagePull)
	case slices.ContainsFunc(slices.Concat(t.Command, t.Env), func(s string) bool { return strings.ContainsRune(s, 0) }):
		return bourse.Errorf(bourse.CodeInvalid, "the command or its environment contains a NUL byte")
	}
	return nil
}

// begin returns a task's job. If the task has no job, begin creates one and offers it to a
// poller. mu must be held.
func (d *Driver) begin(task *driver.Task) (*job, error) {
	if j := d.offers[task.ID.Machine]; j != nil {
		if j.ID == task.ID {
			return j, nil
		}
		return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "boot %d of machine %s is being offered", j.ID.Boot, j.ID.Machine)
	}
	if j := d.jobs[task.ID.Machine]; j != nil {
		switch {
		case j.ID == task.ID:
			return j, nil
		case j.ID.Boot > task.ID.Boot, j.phase != ended:
			return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "boot %d of machine %s already exists", j.ID.Boot, j.ID.Machine)
		}
	}
	size := sizeOf(task.Limits)
	p := d.pick(size)
	if p == nil {
		return nil, bourse.Errorf(bourse.CodeInsufficient, "%s", d.noRoom(size))
	}
	j := &job{record: record{ID: task.ID, Size: size}, task: *task, changed: make(chan struct{})}
	j.Name = d.freeName(task)
	d.offers[j.ID.Machine], d.names[j.Name] = j, j
	d.offer(j, p)
	return j, nil
}

// freeName returns the name that pollers will use for a task: the machine's name. If that name is
// invalid, or if it belongs to another machine's job that has not ended, freeName returns the
// machine's id instead.
func (d *Driver) freeName(task *driver.Task) string {
	if bourse.ValidateMachineName(task.Name) != nil {
		return string(task.ID.Machine)
	}
	if j := d.names[task.Name]; j == nil || j.ID.Machine == task.ID.Machine || j.phase == ended {
		return task.Name
	}
	return string(task.ID.Machine)
}

// awaitClaim waits until j is claimed. If a poller does not claim its offer in time, awaitClaim
// offers j to another poller. When ctx is done, it withdraws the offer.
func (d *Driver) awaitClaim(ctx context.Context, j *job) error {
	again := time.NewTicker(d.cfg.Offer / 4)
	defer again.Stop()
	left := ctx.Done()
	for {
		d.mu.Lock()
		if ctx.Err() != nil {
			left = nil // wait for the claim that is being written
			if j.phase == offered {
				d.withdraw(j)
			}
		}
		now, changed := j.phase, j.changed
		d.mu.Unlock()
		switch now {
		case running, ending, ended:
			return nil
		case withdrawn:
			if err := ctx.Err(); err != nil {
				return err
			}
			return bourse.Errorf(bourse.CodeCanceled, "the offer of job %s was withdrawn", j.Name)
		case offered, claiming:
		}
		select {
		case <-changed:
		case <-left:
		case <-again.C:
			d.mu.Lock()
			if j.phase == offered && time.Since(j.at) >= d.cfg.Offer {
				d.reoffer(j)
			}
			d.mu.Unlock()
		}
	}
}

// withdraw withdraws the offer of an unclaimed job. mu must be held.
func (d *Driver) withdraw(j *job) {
	delete(d.offers, j.ID.Machine)
	d.releaseName(j)
	j.enter(withdrawn)
	d.notify()
}

// releaseName removes j's name from the table. If the job of the machine's previous boot has the
// same name, the name then refers to that job again.
func (d *Driver) releaseName(j *job) {
	if d.names[j.Name] != j {
		return
	}
	delete(d.names, j.Name)
	if old := d.jobs[j.ID.Machine]; old != nil && old != j && old.Name == j.Name {
		d.names[j.Name] = old
	}
}
