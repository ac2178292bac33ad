package machines

import (
	"context"
	"errors"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"

	"github.com/bourse-dev/bourse/worker/state"
)

// An update's image is pulled while the current version runs. The run that pulls it uses a separate
// queue, so that the machine can be stopped, restarted and destroyed in the meantime.

// readyResolve resolves the name of the next version's image, and records the result.
func (ms *Machines) readyResolve(ctx context.Context, r *machineRun) fsm.Outcome {
	return ms.prepareUpdate(ctx, r, func(ctx context.Context, m *bourse.Machine) (fsm.Outcome, error) {
		org, err := ms.images.OrgOf(m)
		if err != nil {
			return fsm.Outcome{}, err
		}
		ref, err := ms.images.Resolve(ctx, org, m.Next.Config.Image)
		if err != nil && transient(err) && m.Image != nil && m.Next.Config.Image == m.Config.Image {
			ref, err = *m.Image, nil // the registry does not answer, so use the machine's current image
		}
		if err != nil {
			return fsm.Outcome{}, err
		}
		return fsm.Done(state.InTx(func(tx *store.Tx) error {
			_, err := state.ChangeMachine(tx, m.ID, func(m *bourse.Machine) (bool, []bourse.Event, error) {
				if !hasPendingUpdate(m, r.Request.Version) {
					return false, nil, nil
				}
				m.Next.Image = &ref
				return true, nil, nil
			})
			return err
		})), nil
	})
}

// readyPull pulls the image for the machine's next version. The image cannot be evicted in the meantime, because the
// machine's record already names it.
func (ms *Machines) readyPull(ctx context.Context, r *machineRun) fsm.Outcome {
	return ms.prepareUpdate(ctx, r, func(ctx context.Context, m *bourse.Machine) (fsm.Outcome, error) {
		ref := *m.Next.Image
		if ms.images.Has(ref) {
			return fsm.Done(), nil
		}
		org, err := ms.images.OrgOf(m)
		if err != nil {
			return fsm.Outcome{}, err
		}
		if r.Attempt == 0 {
			missing, _ := ms.images.Missing(org, ref.String())
			if err := ms.images.RecordPull(ctx, m.ID, &bourse.PullEvent{Image: ref.String(), Bytes: missing}); err != nil {
				return fsm.Outcome{}, err
			}
		}
		begin := time.Now()
		image, err := ms.images.Pull(ctx, org, ref, nil)
		if err != nil {
			return fsm.Outcome{}, err
		}
		took := time.Since(begin)
		ms.state.Counts.Pulled(image.Bytes, took)
		return fsm.Done(state.InTx(func(tx *store.Tx) error {
			_, err := state.ChangeMachine(tx, m.ID, func(m *bourse.Machine) (bool, []bourse.Event, error) {
				return true, []bourse.Event{pullEvent(m, &bourse.PullEvent{Image: ref.String(), Bytes: image.Bytes, Took: took, Done: true})}, nil
			})
			return err
		})), nil
	})
}

// readyBegin waits until the machine's state allows an update, and then begins the
// update.
func (ms *Machines) readyBegin(ctx context.Context, r *machineRun) fsm.Outcome {
	for {
		m, err := ms.state.AwaitMachine(ctx, r.Request.Machine, func(m *bourse.Machine) bool {
			answer, _ := bourse.CallUpdate.On(m.State)
			return !hasPendingUpdate(m, r.Request.Version) || answer == bourse.CallAllowed
		})
		switch {
		case bourse.CodeOf(err) == bourse.CodeNotFound:
			return fsm.Finish()
		case err != nil:
			return fsm.Retry(err)
		case !hasPendingUpdate(&m, r.Request.Version):
			return fsm.Finish()
		}
		_, err = ms.begin(ctx, ms.defs.of(&m).update, machineRequest{Machine: m.ID, Version: r.Request.Version}, state.InTx(func(tx *store.Tx) error {
			_, err := state.ChangeMachine(tx, m.ID, func(m *bourse.Machine) (bool, []bourse.Event, error) {
				if !hasPendingUpdate(m, r.Request.Version) {
					return false, nil, errChanged
				}
				events, err := ms.beginNext(tx, m)
				return true, events, err
			})
			return err
		}))
		switch {
		case errors.Is(err, errChanged):
		case bourse.CodeOf(err) == bourse.CodeInsufficient:
			return ms.abandonUpdate(r, err)
		case err != nil:
			return fsm.Retry(err)
		default:
			return fsm.Done()
		}
	}
}

// prepareUpdate executes a step (do) that prepares an update. It cancels the step if the update is no longer wanted.
func (ms *Machines) prepareUpdate(ctx context.Context, r *machineRun, do func(context.Context, *bourse.Machine) (fsm.Outcome, error)) fsm.Outcome {
	m, err := ms.state.Machine(ctx, r.Request.Machine)
	switch {
	case bourse.CodeOf(err) == bourse.CodeNotFound:
		return fsm.Finish()
	case err != nil:
		return fsm.Retry(err)
	case !hasPendingUpdate(&m, r.Request.Version):
		return fsm.Finish()
	case ms.images.ImageHost == nil:
		return ms.abandonUpdate(r, errNoImages)
	}
	wanted, stop := ms.contextWhile(ctx, m.ID, r.Request.Until, func(now *bourse.Machine) bool { return hasPendingUpdate(now, r.Request.Version) })
	out, err := do(wanted, &m)
	cause := context.Cause(wanted)
	stop()
	switch {
	case err == nil:
		return out
	case errors.Is(cause, errNotNeeded):
		return fsm.Finish()
	case errors.Is(cause, errDeadline):
		return ms.abandonUpdate(r, bourse.Errorf(bourse.CodeUnavailable, "image %s was not pulled within %s", m.Next.Config.Image, updateTimeout))
	case transient(err):
		return fsm.RetryAfter(pullPause(r.Attempt, r.Request.Until), err)
	}
	return ms.abandonUpdate(r, err)
}

// transient reports whether resolving or pulling an image may succeed on another attempt after failing with err.
func transient(err error) bool {
	switch bourse.CodeOf(err) { //nolint:exhaustive // the others are final
	case bourse.CodeUnavailable, bourse.CodeTimeout, bourse.CodeCanceled, bourse.CodeInternal:
		return true
	}
	return false
}

// abandonUpdate abandons an update because of cause. The machine keeps its current version.
func (ms *Machines) abandonUpdate(r *machineRun, cause error) fsm.Outcome {
	return fsm.Abort(cause, state.InTx(func(tx *store.Tx) error { return ms.dropNext(tx, r.Request.Machine, r.Request.Version, cause) }))
}

var errCanceled = bourse.Errorf(bourse.CodeCanceled, "canceled by an operator")

// dropUpdate abandons an update because an operator has canceled its run.
func (ms *Machines) dropUpdate(_ context.Context, r *machineRun) fsm.Outcome {
	return fsm.Done(state.InTx(func(tx *store.Tx) error { return ms.dropNext(tx, r.Request.Machine, r.Request.Version, errCanceled) }))
}
