package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// giveUp ends the launch of a machine that cannot be started: what it left on
// the host is removed, and then its end is recorded.
type giveUp func(ctx context.Context, r *machineRun, m *bourse.Machine, cause error) fsm.Outcome

// starting returns the machine of a run that is to start it.
func (w *Worker) starting(id bourse.MachineID) (bourse.Machine, error) {
	var m bourse.Machine
	err := w.store.View(func(tx *store.Tx) error {
		var err error
		m, err = readMachine(tx, id, recentEvents-1)
		return err
	})
	if err == nil && m.State != bourse.StateStarting { // stopped or destroyed before it came to this
		err = bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is %s", m.ID, m.State)
	}
	return m, err
}

// attach makes what a machine needs of the host before its program starts: the
// image that it is recorded with, its network, its mounts.
func (w *Worker) attach(ctx context.Context, r *machineRun, failed giveUp) fsm.Outcome {
	w.images.drop(r.Request.Machine) // it is recorded by now, or the machine is gone
	m, err := w.starting(r.Request.Machine)
	if err != nil {
		return fsm.Abort(err)
	}
	err = w.ensureImage(ctx, &m)
	if err == nil { // nothing runs yet: a volume that grew while it was used is mounted at its size
		err = w.unmountVolumes(ctx, &m)
	}
	if err == nil {
		_, err = w.fitOut(ctx, &m)
	}
	if err != nil {
		return w.notLaunched(ctx, r, &m, err, failed)
	}
	return fsm.Done()
}

// ensureImage pulls the image that m is recorded with, should it have gone
// from the host.
func (w *Worker) ensureImage(ctx context.Context, m *bourse.Machine) error {
	switch {
	case !bourse.InRegistry(m.Config.Image):
		return nil
	case w.cfg.Images == nil:
		return errNoContainers
	case m.Image == nil: // prepared by nobody: an order's run ends with the image, or the machine is destroyed
		return bourse.Errorf(bourse.CodeInternal, "machine %s has no image", m.ID)
	case w.cfg.Images.Has(*m.Image):
		w.cfg.Images.Used(m.Image.Digest)
		return nil
	}
	org, err := w.orgOf(m)
	if err != nil {
		return err
	}
	if _, err := w.cfg.Images.Pull(ctx, org, *m.Image, nil); err != nil {
		return fmt.Errorf("image %s: %w", m.Image, err)
	}
	w.cfg.Images.Used(m.Image.Digest)
	return nil
}

// notLaunched decides what follows an attempt to start m that came to nothing.
// A program of the host alone is given up after some attempts. Where more is
// concerned, what is unavailable is waited for: until the order's deadline, or
// as long as the machine is wanted.
func (w *Worker) notLaunched(ctx context.Context, r *machineRun, m *bourse.Machine, cause error, failed giveUp) fsm.Outcome {
	late := r.Attempt+1 >= launchAttempts
	switch bourse.CodeOf(cause) {
	case bourse.CodeInvalid, bourse.CodeNotFound, bourse.CodeInsufficient:
		late = true // another attempt would end the same way
	case bourse.CodeUnavailable, bourse.CodeTimeout, bourse.CodeCanceled:
		if !plain(m) {
			late = pastDeadline(r)
		}
	default:
	}
	if !late {
		return fsm.Retry(cause)
	}
	return failed(ctx, r, m, cause)
}

// pastDeadline tells whether the order of a run has passed its deadline. A run of
// no order has none.
func pastDeadline(r *machineRun) bool {
	return !r.Request.Until.IsZero() && !time.Now().Before(r.Request.Until)
}
