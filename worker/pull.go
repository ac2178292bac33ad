package worker

import (
	"context"
	"errors"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Puller is a driver whose tasks are fetched by others, who ask for work: its
// Start hands a task to one of them and returns when that one has claimed it.
// CodeInsufficient: nobody asks for work just now.
type Puller interface {
	driver.Driver
	// Room gives the reason why a task with these limits would be refused
	// now, nil if it would not. It does not block.
	Room(limits driver.Limits) *bourse.Refusal
}

// resourcePollers is what a refusal calls those who ask for work.
const resourcePollers = "pollers"

// pullLimits gives what a poller's host must have free for a machine of image
// pull.
func pullLimits(c *bourse.Config) driver.Limits {
	l := driver.Limits{CPUQuota: bourse.MilliCPU(c.Guest.CPUs * 1000), Memory: c.Guest.MemoryMB}
	if c.Rootfs != nil {
		l.Disk = bourse.MiB(c.Rootfs.SizeGB) << 10
	}
	return l
}

// handOver has a poller claim the task of m, which is starting. It waits no
// longer than the order does, or anybody who starts a machine, and not for one
// that nobody wants any more.
func (w *Worker) handOver(ctx context.Context, d driver.Driver, r *machineRun, m *bourse.Machine) (driver.Status, error) {
	// A host that had it before this daemon was started, perhaps long ago, has it still.
	if status, err := d.Inspect(ctx, taskOf(m)); err == nil {
		return status, nil
	}
	until := r.Request.Until
	if until.IsZero() {
		until = time.Now().Add(bourse.DefaultWithin)
	}
	wanted, stop := w.whileWanted(ctx, m, until)
	status, err := d.Start(wanted, w.task(m, fit{}))
	cause := context.Cause(wanted)
	stop()
	switch {
	case err == nil, ctx.Err() != nil, cause == nil:
		return status, err
	case errors.Is(cause, errUnwanted):
		return status, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is no longer wanted", m.ID)
	}
	return status, bourse.Errorf(bourse.CodeInsufficient, "no poller claimed machine %s before the deadline", m.Name)
}
