package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/bourse-dev/bourse"
)

// View is where the worker tells the cluster what it has, and hears what the
// cluster wants of it. It is a hint to others (invariant 8): the worker works
// on without it, and its own store wins whenever they differ.
//
// The worker calls Publish and Machines from one goroutine, Apps, Cancelled
// and Publish of apps from another. Every call obeys its context; one that
// fails is repeated with patience, so all of them are idempotent. One whose
// context has ended takes effect before every later one, or never.
type View interface {
	// Publish makes what u says of this worker part of the view. It is told
	// when that is so, and not before. CodeInvalid: something in u is what the
	// view cannot hold, and nothing of u is part of it; the worker finds out
	// what it is and leaves that out.
	Publish(ctx context.Context, u Update) error
	// Machines lists the machines that the view has of this worker, in any
	// order.
	Machines(ctx context.Context) ([]bourse.MachineID, error)
	// Apps lists every app that the view has, tombstones included.
	Apps(ctx context.Context) ([]bourse.App, error)
	// Cancelled lists the orders that this worker must not fill.
	Cancelled(ctx context.Context) ([]bourse.OrderID, error)
	// Changed gives a channel of capacity one that holds a token when Apps or
	// Cancelled may have changed. It is always the same channel.
	Changed() <-chan struct{}
	// Lost gives a channel that is closed, and replaced by a new one, when
	// what this worker has published is gone.
	Lost() <-chan struct{}
}

// Update is what the worker tells the view at once. Whoever gets it may keep
// what it holds.
type Update struct {
	Facts    *bourse.Facts // nil: as before; its Machines is nil. The amounts are exact
	Leaving  bool          // goes with Facts: takes no more orders
	Machines []bourse.Machine
	Gone     []bourse.MachineID // destroyed; the view may not know them
	Apps     []bourse.App       // to be merged by App.Merge
}

func (u *Update) empty() bool {
	return u.Facts == nil && len(u.Machines) == 0 && len(u.Gone) == 0 && len(u.Apps) == 0
}

// halves cuts u in two; ok is false when it says one thing only.
func (u *Update) halves() (a, b Update, ok bool) {
	a, b = *u, *u
	switch {
	case u.Facts != nil && len(u.Machines)+len(u.Gone)+len(u.Apps) > 0:
		return Update{Facts: u.Facts, Leaving: u.Leaving}, Update{Machines: u.Machines, Gone: u.Gone, Apps: u.Apps}, true
	case len(u.Gone) > 0 && len(u.Machines)+len(u.Apps) > 0:
		a.Gone = nil
		return a, Update{Gone: u.Gone}, true
	case len(u.Machines) > 0 && len(u.Apps) > 0:
		a.Apps = nil
		return a, Update{Apps: u.Apps}, true
	}
	n, g, p := len(u.Machines)/2, len(u.Gone)/2, len(u.Apps)/2
	a.Machines, b.Machines = u.Machines[:n], u.Machines[n:]
	a.Gone, b.Gone = u.Gone[:g], u.Gone[g:]
	a.Apps, b.Apps = u.Apps[:p], u.Apps[p:]
	return a, b, n+g+p > 0
}

// publishPatience bounds one call of the view.
const publishPatience = 10 * time.Second

// offer hands u to the view. What the view cannot hold is left out: that is no
// reason to keep the rest from it.
func offer(ctx context.Context, log *slog.Logger, view View, u Update) error {
	patient, cancel := context.WithTimeout(ctx, publishPatience)
	err := view.Publish(patient, u)
	cancel()
	if bourse.CodeOf(err) != bourse.CodeInvalid {
		return err
	}
	a, b, ok := u.halves()
	if !ok {
		log.Warn("the view cannot hold this", "what", u.name(), "err", err)
		return nil
	}
	if err := offer(ctx, log, view, a); err != nil {
		return err
	}
	return offer(ctx, log, view, b)
}

// name tells what an update of one thing is about.
func (u *Update) name() string {
	switch {
	case len(u.Machines) > 0:
		return "machine " + string(u.Machines[0].ID)
	case len(u.Gone) > 0:
		return "machine " + string(u.Gone[0])
	case len(u.Apps) > 0:
		return "app " + bourse.Quoted(string(u.Apps[0].Name))
	}
	return "facts"
}
