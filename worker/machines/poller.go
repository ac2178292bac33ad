package machines

import (
	"context"
	"errors"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// handOver has a poller claim the task of m, which is starting. It waits no
// longer than the order does, or anybody who starts a machine, and not for one
// that is no longer wanted.
func (o *operations) handOver(ctx context.Context, d driver.Driver, r *machineRun, m *bourse.Machine) (driver.Status, error) {
	// A host that had it before this daemon was started, perhaps long ago, has it still.
	if status, err := d.Inspect(ctx, TaskOf(m)); err == nil {
		return status, nil
	}
	until := r.Request.Until
	if until.IsZero() {
		until = time.Now().Add(bourse.DefaultWithin)
	}
	wanted, stop := o.while(ctx, m.ID, until, func(now *bourse.Machine) bool { return now.State == m.State })
	status, err := d.Start(wanted, o.policy.Of(m, Attached{}, nil))
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
