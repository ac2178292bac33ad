package worker

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/network"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// LocalAPI is the worker's API for callers in the same process. Handler is the API for callers on the network. Until
// the worker has recovered its state, every call except App fails with CodeUnavailable.
type LocalAPI struct{ w *Worker }

// Local returns the worker's API for callers in the same process.
func (w *Worker) Local() LocalAPI { return LocalAPI{w} }

func (l LocalAPI) ready() error {
	if !l.w.ready.Load() {
		return bourse.Errorf(bourse.CodeUnavailable, "worker %s is starting or stopping", l.w.self.Worker)
	}
	return nil
}

// Claim fills an order on this worker, or returns a refusal, like fabric.OrderClaim.
func (l LocalAPI) Claim(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	if err := l.ready(); err != nil {
		return nil, nil, err
	}
	if err := c.Order.Validate(); err != nil {
		return nil, nil, err
	}
	return l.w.claim(ctx, c)
}

// Cancel cancels an order on this worker, like fabric.OrderCancel.
func (l LocalAPI) Cancel(ctx context.Context, id bourse.OrderID) (bourse.Cancellation, error) {
	if err := l.ready(); err != nil {
		return bourse.Cancellation{}, err
	}
	return l.w.cancel(ctx, id)
}

// App returns the worker's record of the named app. It returns CodeNotFound if there is
// none.
func (l LocalAPI) App(_ context.Context, name bourse.AppName) (bourse.App, error) {
	app, ok, err := l.w.state.App(name)
	if err == nil && !ok {
		err = bourse.Errorf(bourse.CodeNotFound, "app %s not found", name)
	}
	return app, err
}

// Named returns an app's live machine with the given name. It returns CodeNotFound if
// there is none.
func (l LocalAPI) Named(ctx context.Context, app bourse.App, name string) (bourse.Machine, error) {
	var m bourse.Machine
	if err := l.ready(); err != nil {
		return m, err
	}
	if err := l.w.store.Sync(ctx); err != nil {
		return m, err
	}
	err := l.w.store.View(func(tx *store.Tx) error {
		id, ok, err := tx.MachineNamed(app, name)
		switch {
		case err != nil:
			return err
		case !ok:
			return state.ErrNoMachine
		}
		m, err = state.ReadMachine(tx, id, state.RecentEvents)
		return err
	})
	return m, err
}

// Machines returns the machines of app for which keep returns true, oldest first. If app
// is nil, it returns the machines of all apps.
func (l LocalAPI) Machines(ctx context.Context, app *bourse.App, keep func(*bourse.Machine) bool) ([]bourse.Machine, error) {
	if err := l.ready(); err != nil {
		return nil, err
	}
	return l.w.machines.List(ctx, app, keep)
}

// Stop stops a machine. It returns the machine without waiting for its program to exit.
func (l LocalAPI) Stop(ctx context.Context, id bourse.MachineID) (bourse.Machine, error) {
	if err := l.ready(); err != nil {
		return bourse.Machine{}, err
	}
	reply, err := l.w.machines.Stop(ctx, id, fabric.MachineAction{})
	return reply.Machine, err
}

// Destroy destroys a machine that is not running, and returns once it is gone.
func (l LocalAPI) Destroy(ctx context.Context, id bourse.MachineID) error {
	if err := l.ready(); err != nil {
		return err
	}
	_, err := l.w.machines.Destroy(ctx, id, fabric.MachineAction{})
	return err
}

// Names provides the records for DNS answers: this worker's machines, and the machines on other workers that this
// worker's machines can reach.
type Names struct {
	*state.State
	// Elsewhere returns an app's machines on other workers. It is nil if the worker is not connected to other workers'
	// networks. If Elsewhere returns an error, DNS answers contain only the worker's own machines.
	Elsewhere func(app *bourse.App) ([]bourse.Machine, error)
}

var _ network.Names = Names{}

// Apps implements network.Names.
func (n Names) Apps() ([]bourse.App, error) { return n.State.Apps("") }

// Machines implements network.Names. The returned records may not be durable yet. That is safe: if a crash loses the
// record of a start, the resumed run records the start again.
func (n Names) Machines(app *bourse.App) ([]bourse.Machine, error) {
	var out []bourse.Machine
	err := n.Store.View(func(tx *store.Tx) error {
		for m, err := range tx.MachinesOf(*app) {
			if err != nil {
				return err
			}
			out = append(out, m)
		}
		return nil
	})
	if err != nil || n.Elsewhere == nil {
		return out, err
	}
	more, err := n.Elsewhere(app)
	if err != nil {
		n.Log.Warn("look up machines on other workers failed", "app", app.Name, "err", err)
	}
	return append(out, more...), nil
}
