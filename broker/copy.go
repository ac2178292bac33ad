package broker

import (
	"context"
	"log/slog"

	"github.com/bourse-dev/bourse"
)

// viewed gives what the view has of one machine.
func (b *Broker) viewed(ctx context.Context, id bourse.MachineID) (Listed, bool) {
	l, ok, err := b.View.Machine(ctx, id)
	if err != nil {
		b.viewFailed(ctx, err)
		return l, false
	}
	return l, ok && b.mayTell(&l)
}

func (b *Broker) viewFailed(ctx context.Context, err error) {
	b.Log.WarnContext(ctx, "view not read", slog.Any("err", err))
}

// mayTell tells whether the row's site is the machine's owner, as far as the
// id says who that is: a member must not speak for another's machines.
func (b *Broker) mayTell(row *Listed) bool {
	owner, ok := b.Directory.ByTag(row.ID.Tag())
	return !ok || owner.ID == row.Worker
}

// settle leaves a machine to the view at once, if the view has what its owner
// has just told: those who only look are many, and when the machine is gone
// the view alone is to tell so.
func (b *Broker) settle(ctx context.Context, id bourse.MachineID) {
	if l, ok := b.viewed(ctx, id); ok {
		b.fresh.saw(id, l.UpdatedAt)
	}
}

// copyOf gives what is known here of a machine without asking its owner.
func (b *Broker) copyOf(ctx context.Context, id bourse.MachineID) (Listed, bool) {
	t, remembered := b.fresh.get(id) // before the view: see there
	l, ok := b.viewed(ctx, id)
	switch {
	case !remembered:
		return l, ok
	case !ok:
		l = Listed{Machine: t.thing}
	}
	l = l.newer(&t.thing)
	if l.HeardAt.Before(t.at) {
		l.HeardAt = t.at
	}
	return l, true
}
