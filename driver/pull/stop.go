package pull

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Stop implements driver.Driver. It ignores the signal and asks the job's poller to end the job.
// Because the driver cannot kill the poller's program, it gives up the job if the poller does not
// report the end within timeout.
func (d *Driver) Stop(ctx context.Context, id driver.TaskID, _ bourse.Signal, timeout time.Duration) error {
	d.mu.Lock()
	j, err := d.claimed(id)
	if err == nil && j.phase < ended && j.cancel == 0 {
		d.cancels++
		j.cancel = d.cancels
		d.notify()
	}
	d.mu.Unlock()
	if err != nil {
		return err
	}
	patient, cancel := context.WithTimeout(ctx, max(0, timeout))
	defer cancel()
	switch err := d.until(patient, j, ended); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return d.giveUp(j, fmt.Sprintf("its poller did not report the job's end within %s after a cancellation", max(0, timeout)))
}

func (d *Driver) giveUp(j *job, why string) error {
	return d.finish(j, bourse.Exit{Code: -1, Error: why}, nil, true)
}

// Destroy implements driver.Driver.
func (d *Driver) Destroy(ctx context.Context, id bourse.MachineID) error {
	if err := errors.Join(id.Validate(), ctx.Err()); err != nil {
		return err
	}
	d.mu.Lock()
	if j := d.offers[id]; j != nil {
		if err := d.settle(ctx, j); err != nil {
			d.mu.Unlock()
			return err
		}
		if j.phase == offered {
			d.withdraw(j)
		}
	}
	j := d.jobs[id]
	d.mu.Unlock()
	if j == nil {
		return d.erase(id)
	}
	if err := d.giveUp(j, "the machine was destroyed"); err != nil {
		return err
	}
	d.mu.Lock()
	delete(d.jobs, id)
	d.releaseName(j)
	d.notify()
	d.mu.Unlock()
	return d.erase(id)
}

// settle waits until no claim of j is being written. mu must be held; settle unlocks it while it
// waits.
func (d *Driver) settle(ctx context.Context, j *job) error {
	for j.phase == claiming {
		changed := j.changed
		d.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		d.mu.Lock()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// notify wakes goroutines that wait in Cancellations or Logs. mu must be held.
func (d *Driver) notify() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// Cancellations waits until there are jobs that the caller must stop, and returns their names. If
// ctx is done first, it returns no names. If jobs is not empty, Cancellations considers only these
// jobs. It returns those that were canceled, are no longer running, or do not belong to ticket.
// While the call is pending, it counts as a heartbeat for those that belong to ticket. If jobs is
// empty, it returns all canceled jobs whose cancellation number is greater than after. next is the
// latest cancellation number, which the caller can pass to the next call as the parameter after.
func (d *Driver) Cancellations(ctx context.Context, ticket Ticket, jobs []string, after uint64) (names []string, next uint64) {
	defer d.watch(ticket, jobs)()
	for {
		d.mu.Lock()
		names, news := d.canceled(ticket, jobs, after), d.changed
		next = d.cancels
		d.mu.Unlock()
		if len(names) > 0 {
			return names, next
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, next
		}
	}
}

// canceled returns the names that Cancellations must return. If there are none, Cancellations must
// continue to wait. mu must be held.
func (d *Driver) canceled(ticket Ticket, jobs []string, after uint64) (names []string) {
	for _, name := range jobs {
		if j := d.names[name]; j == nil || j.cancel > 0 || j.phase >= ended || j.claimed() && !ticket.matches(j.Ticket) {
			names = append(names, name)
		}
	}
	if len(jobs) > 0 {
		return names
	}
	for name, j := range d.names {
		if j.cancel > after && j.phase < ended {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// watch starts a continuous heartbeat for the named jobs that belong to ticket. The heartbeat
// continues until the returned function is called.
func (d *Driver) watch(ticket Ticket, jobs []string) func() {
	var watched []*job
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range jobs {
		if j := d.names[name]; j != nil && j.claimed() && ticket.matches(j.Ticket) {
			j.watchers++
			watched = append(watched, j)
		}
	}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, j := range watched {
			j.watchers--
			j.lastSeen = time.Now()
		}
	}
}
