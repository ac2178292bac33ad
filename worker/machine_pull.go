package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// pullStep brings the image of an order's machine to the host, and records
// what its name means: that stays so for this version of the machine, whatever
// becomes of the name. It ends with the order's deadline, or as soon as the
// machine is no longer wanted. When there is no such image, or no way to it,
// the order is not filled here.
func (w *Worker) pullStep(ctx context.Context, r *machineRun) fsm.Outcome {
	m, err := w.machine(ctx, r.Request.Machine)
	if err != nil {
		return fsm.Abort(err)
	}
	if m.State != bourse.StateStarting && m.State != bourse.StateCreated { // destroyed before it came to this
		return fsm.Abort(bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is %s", m.ID, m.State))
	}
	if !bourse.InRegistry(m.Config.Image) {
		return fsm.Done()
	}
	wanted, stop := w.whileWanted(ctx, &m, r.Request.Until)
	ref, event, err := w.pull(wanted, &m, r.Attempt == 0)
	if cause := context.Cause(wanted); err != nil && cause != nil {
		err = cause
	}
	stop()
	if err == nil {
		return fsm.Done(inTx(func(tx *store.Tx) error { return recordImage(tx, m.ID, ref, event) }))
	}
	w.images.drop(m.ID)
	code := bourse.CodeOf(err)
	switch {
	case errors.Is(err, errUnwanted):
		return fsm.Abort(bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is no longer wanted", m.ID))
	case errors.Is(err, errTooLate):
	case code == bourse.CodeUnavailable, code == bourse.CodeTimeout, code == bourse.CodeCanceled, code == bourse.CodeInternal:
		return fsm.Retry(fmt.Errorf("pull image %s: %w", m.Config.Image, err))
	case code != bourse.CodeInsufficient:
		err = bourse.Errorf(bourse.CodeNotFound, "%w", err)
	}
	return w.unfilled(ctx, r, &m, err) // a daemon's recovery has given it a network
}

var (
	errUnwanted = errors.New("the machine is no longer wanted")
	errTooLate  = bourse.Errorf(bourse.CodeUnavailable, "the image could not be pulled before the order's deadline")
)

// whileWanted gives a ctx that ends when m leaves the state that it is in, or
// at a time. stop must be called.
func (w *Worker) whileWanted(ctx context.Context, m *bourse.Machine, until time.Time) (_ context.Context, stop func()) {
	ctx, end := context.WithCancelCause(ctx)
	cancel := context.CancelFunc(func() {})
	if !until.IsZero() {
		ctx, cancel = context.WithDeadlineCause(ctx, until, errTooLate)
	}
	var looking sync.WaitGroup
	looking.Go(func() {
		_, err := w.await(ctx, m.ID, func(now *bourse.Machine) bool { return now.State != m.State })
		if err == nil || bourse.CodeOf(err) == bourse.CodeNotFound {
			end(errUnwanted)
		}
	})
	return ctx, func() { end(nil); cancel(); looking.Wait() }
}

// pull has the machine's image on the host when it returns, and kept there
// until that is recorded. The event is nil when nothing had to be pulled.
func (w *Worker) pull(ctx context.Context, m *bourse.Machine, tell bool) (bourse.ImageRef, *bourse.PullEvent, error) {
	org, err := w.orgOf(m)
	if err != nil {
		return bourse.ImageRef{}, nil, err
	}
	ref, err := w.cfg.Images.Resolve(ctx, org, m.Config.Image)
	if err != nil {
		return ref, nil, err
	}
	w.images.hold(m.ID, ref.Digest)
	if w.cfg.Images.Has(ref) {
		return ref, nil, nil
	}
	if tell {
		missing, _ := w.cfg.Images.Missing(org, ref.String())
		if err := w.tellPull(ctx, m.ID, &bourse.PullEvent{Image: ref.String(), Bytes: missing}); err != nil {
			return ref, nil, err
		}
	}
	begin := time.Now()
	image, err := w.cfg.Images.Pull(ctx, org, ref, nil)
	if err != nil {
		return ref, nil, err
	}
	took := time.Since(begin)
	w.counts.pulled(image.Bytes, took)
	if image.Ref.Digest == ref.Digest {
		ref = image.Ref // it may know more: labels
	}
	return ref, &bourse.PullEvent{Image: ref.String(), Bytes: image.Bytes, Took: took, Done: true}, nil
}

// orgOf returns the organisation whose credentials bring m its image: that of
// its app; "" where the app is gone and its name is another's.
func (w *Worker) orgOf(m *bourse.Machine) (org string, err error) {
	err = w.store.View(func(tx *store.Tx) error {
		app, ok, err := tx.App(m.App)
		if ok && m.OwnedBy(&app) {
			org = app.Org
		}
		return err
	})
	return org, err
}

// tellPull writes an event about a pull.
func (w *Worker) tellPull(ctx context.Context, id bourse.MachineID, pull *bourse.PullEvent) error {
	return w.commit(ctx, id, func(tx *store.Tx) error {
		_, err := changeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			return true, []bourse.Event{pullEvent(m, pull)}, nil
		})
		return err
	})
}

func pullEvent(m *bourse.Machine, pull *bourse.PullEvent) bourse.Event {
	return bourse.Event{Type: bourse.EventPull, State: m.State, Source: bourse.SourceWorker, Pull: pull}
}

// recordImage writes what the name of a machine's image means.
func recordImage(tx *store.Tx, id bourse.MachineID, ref bourse.ImageRef, pull *bourse.PullEvent) error {
	_, err := changeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		if m.State != bourse.StateStarting && m.State != bourse.StateCreated {
			return false, nil, nil
		}
		m.Image = &ref
		if pull == nil {
			return true, nil, nil
		}
		return true, []bourse.Event{pullEvent(m, pull)}, nil
	})
	return err
}
