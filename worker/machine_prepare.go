package worker

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// While the intent to start a machine is being written, its driver makes ready
// what it can without running anything of it. What is made ready is the very
// task that launch starts, or launch starts from the beginning.

// prepareStart has m's driver prepare its start, if it can. Where several
// machines are started at once the processors have enough to do meanwhile, and
// it would only be more work. It tells whether the driver was asked.
func (w *Worker) prepareStart(m *bourse.Machine) bool {
	d := w.preparer(m)
	if d == nil || !w.applied.alone() {
		return false
	}
	d.Prepare(w.task(m, fit{}))
	return true
}

// preparer gives the driver that prepares starts of m; nil for none. A task's
// machine reads its payload, and others need more of the host than a program.
func (w *Worker) preparer(m *bourse.Machine) driver.Preparer {
	if m.State != bourse.StateStarting || !plain(m) || m.Config.AutoDestroy || m.Config.Guest.GPUs > 0 {
		return nil
	}
	d, err := w.driverOf(m.Config.Image)
	if err != nil {
		return nil
	}
	p, _ := d.(driver.Preparer)
	return p
}

// unprepare removes what was prepared for a machine that was not recorded.
// When ctx has ended nobody knows whether it was; then the driver does so
// after a while.
func (w *Worker) unprepare(ctx context.Context, m *bourse.Machine) {
	if ctx.Err() != nil {
		return
	}
	if err := w.cfg.Driver.Destroy(ctx, m.ID); err != nil {
		w.log.Warn("remove what was prepared for a machine", "machine", m.ID, "err", err)
	}
}
