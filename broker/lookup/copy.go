package lookup

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/inventory"
)

// fromView returns a machine from the view. It returns false if the view does not contain the
// machine.
func (k *Machines) fromView(ctx context.Context, id bourse.MachineID) (inventory.Listed, bool) {
	l, err := k.View.Machine(ctx, id)
	if err != nil {
		k.viewFailed(ctx, err)
	}
	if err != nil || l == nil || !k.isOwnersRow(l) {
		return inventory.Listed{}, false
	}
	return *l, true
}

// isOwnersRow reports whether a view row was written by the worker that owns the machine. It returns true if the owner
// is unknown.
func (k *Machines) isOwnersRow(row *inventory.Listed) bool { return k.owns(row.Worker, row.ID.Tag()) }

// Settle stops using the remembered reply about a machine if the view's row is at least as recent. From then on, only
// the view determines whether the machine still exists.
func (k *Machines) Settle(ctx context.Context, id bourse.MachineID) {
	if l, ok := k.fromView(ctx, id); ok {
		k.fresh.sawInView(id, l.UpdatedAt)
	}
}

// Copy returns a machine's data from the view and recent replies, without asking the machine's worker.
func (k *Machines) Copy(ctx context.Context, id bourse.MachineID) (inventory.Listed, bool) {
	t, remembered := k.fresh.get(id) // must happen before the view is read; see fresh.of
	l, ok := k.fromView(ctx, id)
	switch {
	case !remembered:
		return l, ok
	case !ok:
		l = inventory.Listed{Machine: t.thing, Complete: true}
	}
	l = newer(l, &t.thing)
	if l.HeardAt.Before(t.at) {
		l.HeardAt = t.at
	}
	return l, true
}
