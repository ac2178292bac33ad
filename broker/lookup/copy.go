package lookup

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/inventory"
)

// viewed returns what the view has of one machine.
func (k *Machines) viewed(ctx context.Context, id bourse.MachineID) (inventory.Listed, bool) {
	l, err := k.View.Machine(ctx, id)
	if err != nil {
		k.viewFailed(ctx, err)
	}
	if err != nil || l == nil || !k.mayTell(l) {
		return inventory.Listed{}, false
	}
	return *l, true
}

// mayTell reports whether the row's site is the machine's owner, as far as the
// id says who that is.
func (k *Machines) mayTell(row *inventory.Listed) bool { return k.owns(row.Worker, row.ID.Tag()) }

// Settle leaves a machine to the view at once, if the view has what its owner
// has just replied: those who only look are many, and when the machine is gone
// the view alone is to say so.
func (k *Machines) Settle(ctx context.Context, id bourse.MachineID) {
	if l, ok := k.viewed(ctx, id); ok {
		k.fresh.saw(id, l.UpdatedAt)
	}
}

// Copy returns what is known here of a machine without asking its owner.
func (k *Machines) Copy(ctx context.Context, id bourse.MachineID) (inventory.Listed, bool) {
	t, remembered := k.fresh.get(id) // before the view: see there
	l, ok := k.viewed(ctx, id)
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
