package publish

import (
	"context"
	"log/slog"
	"time"

	"github.com/bourse-dev/bourse"
)

// View receives the worker's records, and contains other members' requests to the worker. It is only a hint (invariant
// 8): the worker does not need it, and wherever it differs from the worker's store, the store wins.
//
// One goroutine calls Publish, except for apps, and the methods of ViewRows. Another goroutine calls Apps and Canceled,
// and publishes apps. Every call must return when its context is done. A call that returns for that reason must not
// take effect after a later call. Failed calls are repeated after a backoff, so all calls must be idempotent.
type View interface {
	// Publish applies u to the view, and returns once the view contains the changes. If the view does not accept a
	// value in u, Publish returns CodeInvalid and does not change anything. The caller then publishes u without that
	// value.
	Publish(ctx context.Context, u Update) error
	ViewRows
	// Apps returns all apps in the view, including tombstones.
	Apps(ctx context.Context) ([]bourse.App, error)
	// Proof returns the view's record of an app, including the record's proof.
	Proof(ctx context.Context, name bourse.AppName) (bourse.App, error)
	// Canceled returns the orders that this worker must not fill.
	Canceled(ctx context.Context) ([]bourse.OrderID, error)
	// Changed returns a channel of capacity one that contains a token if the result of Apps or Canceled may have
	// changed. Every call returns the same channel.
	Changed() <-chan struct{}
	// RowsLost returns a channel that is closed when the view has lost the rows that this worker published. After that,
	// RowsLost returns a new channel.
	RowsLost() <-chan struct{}
}

// ViewRows lists this worker's rows in the view, in any order.
type ViewRows interface {
	Machines(ctx context.Context) ([]bourse.MachineID, error)
	Volumes(ctx context.Context) ([]bourse.VolumeID, error)
	Images(ctx context.Context) (digests []string, err error)
}

// Update contains changes to publish together. The View may retain the values.
type Update struct {
	Facts       *bourse.Facts // the worker's facts, with exact amounts but without Machines; nil if they have not changed
	Leaving     bool          // whether the worker no longer accepts orders; used only with Facts
	Machines    []bourse.Machine
	Gone        []bourse.MachineID // destroyed machines; the view need not contain them
	Volumes     []bourse.Volume    // volumes, without their usage
	GoneVolumes []bourse.VolumeID  // destroyed volumes; the view need not contain them, and their snapshots may still exist
	Images      []bourse.Image     // images on the host
	GoneImages  []string           // digests of images that are no longer on the host
	Apps        []bourse.App       // apps to merge with App.Merge; apps without a proof are ignored
}

func (u *Update) empty() bool { return u.Facts == nil && u.count() == 0 }

// count returns the number of values in u, excluding the facts.
func (u *Update) count() int {
	return len(u.Machines) + len(u.Gone) + len(u.Volumes) + len(u.GoneVolumes) + len(u.Images) + len(u.GoneImages) + len(u.Apps)
}

// split splits u into its facts and everything else or, if it has no facts, into two halves. If u contains only one
// value, it cannot be split, and ok is false.
func (u *Update) split() (a, b Update, ok bool) {
	n := u.count()
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

// clear removes all values except the facts from u.
func (u *Update) clear() { *u = Update{Facts: u.Facts, Leaving: u.Leaving} }

// cut splits a list after its first n values. If the list has fewer than n values, missing is the number of values that
// it lacks.
func cut[T any](list []T, n int) (first, rest []T, missing int) {
	k := min(n, len(list))
	return list[:k:k], list[k:], n - k
}

// Timeout is the time limit for a call to the view.
const Timeout = 10 * time.Second

// publishAccepted publishes u except the values that the view does not accept.
func publishAccepted(ctx context.Context, log *slog.Logger, view View, u Update) error {
	patient, cancel := context.WithTimeout(ctx, Timeout)
	err := view.Publish(patient, u)
	cancel()
	if bourse.CodeOf(err) != bourse.CodeInvalid {
		return err
	}
	a, b, ok := u.split()
	if !ok {
		log.Warn("view did not accept record, leaving it out", "what", u.name(), "err", err)
		return nil
	}
	if err := publishAccepted(ctx, log, view, a); err != nil {
		return err
	}
	return publishAccepted(ctx, log, view, b)
}

// name describes the only value in u for the log.
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
