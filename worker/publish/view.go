package publish

import (
	"context"
	"log/slog"
	"time"

	"github.com/bourse-dev/bourse"
)

// View is where the worker publishes what it has, and reads what the cluster
// wants of it. It is a hint to others (invariant 8): the worker works without
// it, and its own store wins whenever they differ.
//
// Publish and the methods of ViewRows are called from one goroutine, Apps,
// Cancelled and Publish of apps from another. Every call respects its context;
// one that fails is repeated with backoff, so all of them are idempotent. One
// whose context has ended takes effect before every later one, or never.
type View interface {
	// Publish makes what u says of this worker part of the view, and returns
	// when it is. CodeInvalid: something in u is what the view cannot hold, and
	// nothing of u is part of it; the caller finds out what it is and leaves
	// that out.
	Publish(ctx context.Context, u Update) error
	ViewRows
	// Apps lists every app that the view has, tombstones included.
	Apps(ctx context.Context) ([]bourse.App, error)
	// Prove returns the view's record of an app with its proof.
	Prove(ctx context.Context, name bourse.AppName) (bourse.App, error)
	// Cancelled lists the orders that this worker must not fill.
	Cancelled(ctx context.Context) ([]bourse.OrderID, error)
	// Changed returns a channel of capacity one that holds a token when Apps or
	// Cancelled may have changed. It is always the same channel.
	Changed() <-chan struct{}
	// Lost returns a channel that is closed, and replaced by a new one, when
	// what this worker has published is gone.
	Lost() <-chan struct{}
}

// ViewRows lists what the view has of this worker, in any order.
type ViewRows interface {
	Machines(ctx context.Context) ([]bourse.MachineID, error)
	Volumes(ctx context.Context) ([]bourse.VolumeID, error)
	Images(ctx context.Context) (digests []string, err error)
}

// Update is what is published at once. Its receiver may keep what it holds.
type Update struct {
	Facts       *bourse.Facts // nil: as before; its Machines is nil. The amounts are exact
	Leaving     bool          // goes with Facts: takes no more orders
	Machines    []bourse.Machine
	Gone        []bourse.MachineID // destroyed; the view may not know them
	Volumes     []bourse.Volume    // without their usage
	GoneVolumes []bourse.VolumeID  // as Gone; snapshots of one may still be there
	Images      []bourse.Image     // that are there
	GoneImages  []string           // digests
	Apps        []bourse.App       // to be merged by App.Merge, as far as they have proofs
}

func (u *Update) empty() bool { return u.Facts == nil && u.things() == 0 }

// things counts what u says beside facts.
func (u *Update) things() int {
	return len(u.Machines) + len(u.Gone) + len(u.Volumes) + len(u.GoneVolumes) + len(u.Images) + len(u.GoneImages) + len(u.Apps)
}

// halves cuts u in two, the facts for themselves; ok is false when it says one
// thing only.
func (u *Update) halves() (a, b Update, ok bool) {
	n := u.things()
	switch {
	case u.Facts != nil:
		a, b = *u, *u
		a.clear()
		b.Facts, b.Leaving = nil, false
		return a, b, n > 0
	case n < 2:
		return a, b, false
	}
	n /= 2 // that go to a
	a.Machines, b.Machines, n = cut(u.Machines, n)
	a.Gone, b.Gone, n = cut(u.Gone, n)
	a.Volumes, b.Volumes, n = cut(u.Volumes, n)
	a.GoneVolumes, b.GoneVolumes, n = cut(u.GoneVolumes, n)
	a.Images, b.Images, n = cut(u.Images, n)
	a.GoneImages, b.GoneImages, n = cut(u.GoneImages, n)
	a.Apps, b.Apps, _ = cut(u.Apps, n)
	return a, b, true
}

// clear drops all but the facts.
func (u *Update) clear() { *u = Update{Facts: u.Facts, Leaving: u.Leaving} }

// cut returns the first n of a list, the others, and how many were missing.
func cut[T any](list []T, n int) (first, rest []T, missing int) {
	k := min(n, len(list))
	return list[:k:k], list[k:], n - k
}

// Patience bounds one call of the view.
const Patience = 10 * time.Second

// offer hands u to the view. What the view cannot hold is left out: that is no
// reason to keep the rest from it.
func offer(ctx context.Context, log *slog.Logger, view View, u Update) error {
	patient, cancel := context.WithTimeout(ctx, Patience)
	err := view.Publish(patient, u)
	cancel()
	if bourse.CodeOf(err) != bourse.CodeInvalid {
		return err
	}
	a, b, ok := u.halves()
	if !ok {
		log.Warn("left out of view: it cannot hold this", "what", u.name(), "err", err)
		return nil
	}
	if err := offer(ctx, log, view, a); err != nil {
		return err
	}
	return offer(ctx, log, view, b)
}

// name says what an update of one thing is about.
func (u *Update) name() string {
	switch {
	case len(u.Machines) > 0:
		return "machine " + string(u.Machines[0].ID)
	case len(u.Gone) > 0:
		return "machine " + string(u.Gone[0])
	case len(u.Volumes) > 0:
		return "volume " + string(u.Volumes[0].ID)
	case len(u.GoneVolumes) > 0:
		return "volume " + string(u.GoneVolumes[0])
	case len(u.Images) > 0:
		return "image " + u.Images[0].Ref.String()
	case len(u.GoneImages) > 0:
		return "image " + u.GoneImages[0]
	case len(u.Apps) > 0:
		return "app " + bourse.Quoted(string(u.Apps[0].Name))
	}
	return "facts"
}
