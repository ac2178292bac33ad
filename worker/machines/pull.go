package machines

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"

	"github.com/bourse-dev/bourse/worker/state"
)

// pullStep brings the image of an order's machine to the host, and records
// what its name means: that stays so for this version of the machine, whatever
// becomes of the name. It ends with the order's deadline, or as soon as the
// machine is no longer wanted. When there is no such image, or no way to it,
// the order is not filled here.
func (o *operations) pullStep(ctx context.Context, r *machineRun) fsm.Outcome {
	m, err := o.state.Machine(ctx, r.Request.Machine)
	if err != nil {
		return fsm.Abort(err)
	}
	if m.State != bourse.StateStarting && m.State != bourse.StateCreated { // destroyed before it came to this
		return fsm.Abort(bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is %s", m.ID, m.State))
	}
	if m.Config.ImageKind() != bourse.RegistryImage {
		return fsm.Done()
	}
	wanted, stop := o.while(ctx, m.ID, r.Request.Until, func(now *bourse.Machine) bool { return now.State == m.State })
	ref, event, err := o.images.PullFor(wanted, &m)
	if cause := context.Cause(wanted); err != nil && cause != nil {
		err = ofTime(cause, &m, r.Failure)
	}
	stop()
	if err == nil {
		return fsm.Done(state.InTx(func(tx *store.Tx) error { return recordImage(tx, m.ID, ref, event) }))
	}
	o.images.Drop(m.ID)
	switch code := bourse.CodeOf(err); {
	case errors.Is(err, errUnwanted):
		return fsm.Abort(bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is no longer wanted", m.ID))
	case errors.Is(err, errTooLate):
	case errors.As(err, new(Unresolved)) && r.Attempt > 0 && !Told(&m):
		// Its registry was not reached twice, and never before: another worker may reach it.
	case code == bourse.CodeUnavailable, code == bourse.CodeTimeout, code == bourse.CodeCanceled, code == bourse.CodeInternal:
		return fsm.RetryAfter(pullPause(r.Attempt, r.Request.Until), err)
	}
	return o.unfilled(ctx, r, &m, err) // a daemon's recovery has given it a network
}

var (
	errUnwanted = errors.New("the machine is no longer wanted")
	errTooLate  = errors.New("the order's deadline has passed")
)

// ofTime returns the error of a pull that its ctx has ended: of one that came too late, with
// the failure of the attempt before.
func ofTime(cause error, m *bourse.Machine, failure string) error {
	if !errors.Is(cause, errTooLate) {
		return cause
	}
	text := "image " + m.Config.Image + ": not pulled before the order's deadline"
	if failure != "" {
		text += ": " + strings.TrimPrefix(failure, "image "+m.Config.Image+": ")
	}
	return &bourse.Error{Code: bourse.CodeUnavailable, Message: text, Err: errTooLate}
}

const (
	pullPauseFirst = 100 * time.Millisecond
	pullPauseMost  = 5 * time.Second
)

// pullPause is how long to wait before a pull is tried again: doubling, and not past the
// order's deadline, at which its claim is answered.
func pullPause(attempt int, until time.Time) time.Duration {
	pause := min(pullPauseMost, pullPauseFirst<<min(attempt, 10))
	if !until.IsZero() {
		pause = min(pause, time.Until(until))
	}
	return pause
}

// while returns a ctx that ends when what is pulled for a machine is no longer
// wanted, or at a time. stop must be called.
func (o *operations) while(ctx context.Context, id bourse.MachineID, until time.Time, wanted func(*bourse.Machine) bool) (_ context.Context, stop func()) {
	ctx, end := context.WithCancelCause(ctx)
	cancel := context.CancelFunc(func() {})
	if !until.IsZero() {
		ctx, cancel = context.WithDeadlineCause(ctx, until, errTooLate)
	}
	var looking sync.WaitGroup
	looking.Go(func() {
		_, err := o.state.AwaitMachine(ctx, id, func(now *bourse.Machine) bool { return !wanted(now) })
		if err == nil || bourse.CodeOf(err) == bourse.CodeNotFound {
			end(errUnwanted)
		}
	})
	return ctx, func() { end(nil); cancel(); looking.Wait() }
}

// recordImage writes what the name of a machine's image means.
func recordImage(tx *store.Tx, id bourse.MachineID, ref bourse.ImageRef, pull *bourse.PullEvent) error {
	_, err := state.ChangeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		if m.State != bourse.StateStarting && m.State != bourse.StateCreated {
			return false, nil, nil
		}
		m.Image = &ref
		if pull == nil {
			return true, nil, nil
		}
		return true, []bourse.Event{PullEvent(m, pull)}, nil
	})
	return err
}

// Pulling returns how far the pull has come that an order's machine waits for.
// CodeNotFound when it waits for none.
func (ms *Machines) Pulling(_ context.Context, id bourse.OrderID) (bourse.Image, error) {
	var rec store.OrderRecord
	err := ms.state.Store.View(func(tx *store.Tx) (err error) {
		rec, _, err = tx.Order(id)
		return err
	})
	if err != nil {
		return bourse.Image{}, err
	}
	if image, ok := ms.ops.images.Coming(rec.Machine); ok {
		return image, nil
	}
	return bourse.Image{}, bourse.Errorf(bourse.CodeNotFound, "no image is being pulled for order %s", id)
}
