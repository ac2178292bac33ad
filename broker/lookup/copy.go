package lookup

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/inventory"
)

// fromView returns the view's data about one machine.
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

// isOwnersRow reports whether the row was written by the machine's owner, as far as that is known from the ID.
func (k *Machines) isOwnersRow(row *inventory.Listed) bool { return k.owns(row.Worker, row.ID.Tag()) }

// Settle discards the remembered reply about a machine at once if the view already contains it. Reads are frequent,
// and once the machine is destroyed, only the view should determine that.
func (k *Machines) Settle(ctx context.Context, id bourse.MachineID) {
	if l, ok := k.fromView(ctx, id); ok {
		k.fresh.sawInView(id, l.UpdatedAt)
	}
}

// Copy returns this broker's data about a machine without asking its owner.
func (k *Machines) Copy(ctx context.Context, id bourse.MachineID) (inventory.Listed, bool) {
	t, remembered := k.fresh.get(id) // before reading the view; see fresh.of
	l, ok := k.fromView(ctx, id)
	switch {
	case !remembered:
		return l, ok
	case !ok:
		l = inventory.Listed{Machine: t.thing, Whole: true}
	}
	l = newer(l, &t.thing)
	if l.HeardAt.Before(t.at) {
		l.HeardAt = t.at
	}
	return l, true
}
