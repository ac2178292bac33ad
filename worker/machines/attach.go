package machines

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"

	"github.com/bourse-dev/bourse/worker/state"
)

// giveUp ends the launch of a machine that cannot be started: what it left on
// the host is removed, and then its end is recorded.
type giveUp func(ctx context.Context, r *machineRun, m *bourse.Machine, cause error) fsm.Outcome

// starting returns the machine of a run that is to start it.
func (o *operations) starting(id bourse.MachineID) (bourse.Machine, error) {
	var m bourse.Machine
	err := o.state.Store.View(func(tx *store.Tx) error {
		var err error
		m, err = state.ReadMachine(tx, id, state.RecentEvents-1)
		return err
	})
	if err == nil && m.State != bourse.StateStarting { // stopped or destroyed before it came to this
		err = bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is %s", m.ID, m.State)
	}
	return m, err
}

// attach makes what a machine needs of the host before its program starts: the
// image that it is recorded with, its network, its mounts.
func (o *operations) attach(ctx context.Context, r *machineRun, failed giveUp) fsm.Outcome {
	o.images.Drop(r.Request.Machine) // it is recorded by now, or the machine is gone
	m, err := o.starting(r.Request.Machine)
	if err != nil {
		return fsm.Abort(err)
	}
	err = o.images.Ensure(ctx, &m)
	if err == nil { // nothing runs yet: a volume that grew while it was used is mounted at its size
		err = o.volumes.Unmount(ctx, &m)
	}
	if err == nil {
		_, err = o.fittings.Prepare(ctx, &m)
	}
	if err != nil {
		return o.notLaunched(ctx, r, &m, err, failed)
	}
	return fsm.Done()
}

// notLaunched decides what follows an attempt to start m that came to nothing.
// A program of the host alone is given up after some attempts. Where more is
// concerned, what is unavailable is waited for: until the order's deadline, or
// as long as the machine is wanted.
func (o *operations) notLaunched(ctx context.Context, r *machineRun, m *bourse.Machine, cause error, failed giveUp) fsm.Outcome {
	late := r.Attempt+1 >= launchAttempts
	switch bourse.CodeOf(cause) {
	case bourse.CodeInvalid, bourse.CodeNotFound, bourse.CodeInsufficient:
		late = true // another attempt would end the same way
	case bourse.CodeUnavailable, bourse.CodeTimeout, bourse.CodeCanceled:
		if !IsPlain(m) || m.Secrets > 0 {
			late = pastDeadline(r)
		}
	default:
	}
	if !late {
		return fsm.Retry(cause)
	}
	return failed(ctx, r, m, cause)
}

// pastDeadline reports whether the order of a run has passed its deadline. A run of
// no order has none.
func pastDeadline(r *machineRun) bool {
	return !r.Request.Until.IsZero() && !time.Now().Before(r.Request.Until)
}
