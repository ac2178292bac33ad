package worker

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/store"
)

// Local is the worker for who stands in the same process with it: what comes
// over the network goes through Handler, and ends here, too. Until the worker
// has recovered every call is CodeUnavailable.
type Local struct{ w *Worker }

// Local gives the worker's own side.
func (w *Worker) Local() Local { return Local{w} }

func (l Local) ready() error {
	if !l.w.ready.Load() {
		return bourse.Errorf(bourse.CodeUnavailable, "worker %s is starting or stopping", l.w.self.Worker)
	}
	return nil
}

// Claim fills an order here, or gives the refusal; as fabric.PathClaim does.
func (l Local) Claim(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	if err := l.ready(); err != nil {
		return nil, nil, err
	}
	if err := c.Order.Validate(); err != nil {
		return nil, nil, err
	}
	return l.w.claim(ctx, c)
}

// Cancel cancels an order here; as fabric.PathCancel does.
func (l Local) Cancel(ctx context.Context, id bourse.OrderID) (bourse.Cancellation, error) {
	if err := l.ready(); err != nil {
		return bourse.Cancellation{}, err
	}
	return l.w.cancel(ctx, id)
}

// App gives the app of a name, as far as the worker knows. CodeNotFound: there is
// none.
func (l Local) App(_ context.Context, name bourse.AppName) (app bourse.App, err error) {
	err = l.w.store.View(func(tx *store.Tx) error {
		known, ok, err := tx.App(name)
		switch {
		case err != nil:
			return err
		case ok && known.DeletedAt == nil:
			app = known
		case name == bourse.DefaultAppName:
			app = bourse.DefaultApp(known)
		default:
			return bourse.Errorf(bourse.CodeNotFound, "app %s not found", name)
		}
		return nil
	})
	return app, err
}

// Named gives the living machine of a name. CodeNotFound: there is none.
func (l Local) Named(ctx context.Context, app bourse.App, name string) (bourse.Machine, error) {
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
			return errNoMachine
		}
		m, err = readMachine(tx, id, recentEvents)
		return err
	})
	return m, err
}

// Machines lists the machines of an app, of all for nil, that keep says yes to,
// oldest first.
func (l Local) Machines(ctx context.Context, app *bourse.App, keep func(*bourse.Machine) bool) ([]bourse.Machine, error) {
	if err := l.ready(); err != nil {
		return nil, err
	}
	return l.w.machines(ctx, app, keep)
}

// Stop asks a machine to end and gives it as it is then.
func (l Local) Stop(ctx context.Context, id bourse.MachineID) (bourse.Machine, error) {
	if err := l.ready(); err != nil {
		return bourse.Machine{}, err
	}
	reply, err := l.w.stop(ctx, id, fabric.Act{})
	return reply.Machine, err
}

// Destroy removes a machine that has ended, and answers when it is gone.
func (l Local) Destroy(ctx context.Context, id bourse.MachineID) error {
	if err := l.ready(); err != nil {
		return err
	}
	_, err := l.w.destroy(ctx, id, fabric.Act{})
	return err
}
