package publish

import (
	"context"
	"log/slog"
	"time"

	"github.com/bourse-dev/bourse"
)

// View receives the worker's records and contains the cluster's requests to the worker. It
// is a hint to others (invariant 8): the worker does not need it, and its own store wins
// whenever they differ.
//
// Publish and the methods of ViewRows are called by one goroutine; Apps, Cancelled and
// Publish of apps by another. Every call must respect its context. A failed call is
// repeated with backoff, so all calls must be idempotent. A call whose context has ended
// must take effect before every later call, or never.
type View interface {
	// Publish makes u part of the view, and returns once it is. It returns CodeInvalid,
	// and changes nothing, if u contains something that the view does not accept. The
	// caller then leaves that part out.
	Publish(ctx context.Context, u Update) error
	ViewRows
	// Apps returns all apps in the view, including tombstones.
	Apps(ctx context.Context) ([]bourse.App, error)
	// Prove returns the view's record of an app with its proof.
	Prove(ctx context.Context, name bourse.AppName) (bourse.App, error)
	// Cancelled returns the orders that this worker must not fill.
	Cancelled(ctx context.Context) ([]bourse.OrderID, error)
	// Changed returns a channel of capacity one that contains a token if the result of
	// Apps or Cancelled may have changed. It is always the same channel.
	Changed() <-chan struct{}
	// Lost returns a channel that is closed, and replaced by a new one, when the view
	// has lost everything that this worker has published.
	Lost() <-chan struct{}
}

// ViewRows lists this worker's rows in the view, in any order.
type ViewRows interface {
	Machines(ctx context.Context) ([]bourse.MachineID, error)
	Volumes(ctx context.Context) ([]bourse.VolumeID, error)
	Images(ctx context.Context) (digests []string, err error)
}

// Update contains changes that are published together. Its receiver may keep the values.
type Update struct {
	Facts       *bourse.Facts // with exact amounts and without Machines; nil if they have not changed
	Leaving     bool          // the worker accepts no more orders; used only with Facts
	Machines    []bourse.Machine
	Gone        []bourse.MachineID // destroyed; the view may not know them
	Volumes     []bourse.Volume    // without their usage
	GoneVolumes []bourse.VolumeID  // like Gone; their snapshots may still exist
	Images      []bourse.Image     // on the host
	GoneImages  []string           // digests
	Apps        []bourse.App       // to merge with App.Merge; those without proofs are ignored
}

func (u *Update) empty() bool { return u.Facts == nil && u.things() == 0 }

// things returns the number of values in u, without the facts.
func (u *Update) things() int {
	return len(u.Machines) + len(u.Gone) + len(u.Volumes) + len(u.GoneVolumes) + len(u.Images) + len(u.GoneImages) + len(u.Apps)
}

// halves splits u into the facts and the rest or, if it has no facts, into two halves. ok is
// false if u contains only one value.
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
	n /= 2 // number of values in a
	a.Machines, b.Machines, n = cut(u.Machines, n)
	a.Gone, b.Gone, n = cut(u.Gone, n)
	a.Volumes, b.Volumes, n = cut(u.Volumes, n)
	a.GoneVolumes, b.GoneVolumes, n = cut(u.GoneVolumes, n)
	a.Images, b.Images, n = cut(u.Images, n)
	a.GoneImages, b.GoneImages, n = cut(u.GoneImages, n)
	a.Apps, b.Apps, _ = cut(u.Apps, n)
	return a, b, true
}

// clear removes everything except the facts.
func (u *Update) clear() { *u = Update{Facts: u.Facts, Leaving: u.Leaving} }

// cut returns the first n values of a list, the others, and by how many the list is shorter
// than n.
func cut[T any](list []T, n int) (first, rest []T, missing int) {
	k := min(n, len(list))
	return list[:k:k], list[k:], n - k
}

// Patience is the time limit of one call of the view.
const Patience = 10 * time.Second

// offer publishes u. If the view does not accept a value, offer leaves out only that value.
func offer(ctx context.Context, log *slog.Logger, view View, u Update) error {
	patient, cancel := context.WithTimeout(ctx, Patience)
	err := view.Publish(patient, u)
	cancel()
	if bourse.CodeOf(err) != bourse.CodeInvalid {
		return err
	}
	a, b, ok := u.halves()
	if !ok {
		log.Warn("record left out of view: not accepted", "what", u.name(), "err", err)
		return nil
	}
	if err := offer(ctx, log, view, a); err != nil {
		return err
	}
	return offer(ctx, log, view, b)
}

// name returns the name of the only value in u, for the log.
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
