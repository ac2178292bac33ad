package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// fit is what a machine has of the host beside its program: a network, mounts,
// a place for what it writes.
type fit struct {
	network *driver.Network
	mounts  []driver.Mount
	scratch string
}

// plain tells whether m is nothing but a program, of the host or of somebody
// who pulls it: such a machine needs no fit, and is started in one step.
func plain(m *bourse.Machine) bool {
	return !bourse.InRegistry(m.Config.Image) && !m.PrivateIP.IsValid() && len(m.Config.Mounts) == 0
}

// fitOut makes what m has of the host, or finds it: it is idempotent. m is
// recorded as starting, and of its effects shed or clearOut leaves nothing.
func (w *Worker) fitOut(ctx context.Context, m *bourse.Machine) (fit, error) {
	var f fit
	if plain(m) {
		return f, nil
	}
	var err error
	if f.network, err = w.attachNetwork(ctx, m); err != nil {
		return f, fmt.Errorf("network of machine %s: %w", m.ID, err)
	}
	if f.mounts, err = w.mountVolumes(ctx, m); err != nil {
		return f, fmt.Errorf("volumes of machine %s: %w", m.ID, err)
	}
	if n := w.ledger.scratch(&m.Config); n > 0 {
		if w.cfg.Volumes == nil {
			return f, bourse.Errorf(bourse.CodeInvalid, "the worker can no longer limit the root file system of machine %s", m.ID)
		}
		if f.scratch, err = w.cfg.Volumes.Scratch(ctx, m.ID, int64(n)); err != nil {
			return f, fmt.Errorf("root file system of machine %s: %w", m.ID, err)
		}
	}
	return f, nil
}

// vacate undoes fitOut but for what a stopped machine keeps: what it wrote,
// and its address, which follows from its id.
func (w *Worker) vacate(ctx context.Context, m *bourse.Machine) error {
	if plain(m) {
		return nil
	}
	return errors.Join(w.unmountVolumes(ctx, m), w.detachNetwork(ctx, m))
}

// clearOut undoes fitOut altogether.
func (w *Worker) clearOut(ctx context.Context, m *bourse.Machine) error {
	err := w.vacate(ctx, m)
	if w.cfg.Volumes != nil && bourse.InRegistry(m.Config.Image) {
		err = errors.Join(err, w.cfg.Volumes.RemoveScratch(ctx, m.ID))
	}
	return err
}

const (
	shedTries   = 3
	shedTimeout = 10 * time.Second // of each try
)

// shed is vacate for a machine whose end waits to be recorded. It does not
// keep that waiting for long: what is left is taken up by the machine's next
// start, or removed when the worker recovers or the machine is destroyed. The
// error is that of ctx: then nothing may be recorded.
func (w *Worker) shed(ctx context.Context, m *bourse.Machine) error {
	for n := range shedTries {
		try, cancel := context.WithTimeout(ctx, shedTimeout)
		err := w.vacate(try, m)
		cancel()
		if err == nil || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w.log.Warn("release what a stopped machine had of the host", "machine", m.ID, "attempt", n+1, "err", err)
		w.rest(ctx, bourse.RestartBackoff(n+1))
	}
	return context.Cause(ctx)
}
