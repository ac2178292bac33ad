// Package market implements the exchange. It finds the worker that fills an order, or explains why
// no worker does.
//
// An order goes through four steps:
//
//   - Candidates are taken from a [Directory] (sample.go).
//   - The candidates are asked for quotes concurrently (quote.go).
//   - The quotes are ranked by a pure function (rank.go, curves.go).
//   - The order is claimed on the willing workers, best first, until one of them fills it
//     (claim.go). An order can also request concurrent claims (race.go).
//
// If a similar order was quoted recently, its quotes are used, and workers are asked only if the claim fails
// (quotecache.go). An order's regions are tried in order of preference. If an order might be a repeated one, all
// workers are first asked whether they have filled it (place_once.go, absent.go). The outcome is recorded in a
// bourse.Decision (record.go). The messages of refusals are written in refusal.go.
//
// A reservation consists of several orders for capacity, which are either all filled or not at all
// (reserve.go).
//
// The package upholds these invariants of package bourse:
//
//   - 2, no pending: [Exchange.Place] returns before the order's deadline,
//     whatever workers do, as long as the Trader returns when its context is done.
//   - 3, region is law: quotes and fills from a worker outside of the current choice
//     are ignored or undone, whatever region the directory lists for the worker.
//   - 7, once: if the outcome of a claim is unknown, the claim is canceled on that worker before
//     another worker's fill counts. No machine is left behind for a caller that was refused or has
//     disconnected. Cancellations that cannot be delivered immediately are written to
//     [CancellationStore], where the worker finds them, and retried by [Exchange.Run].
//   - 8, the view is a hint: candidates determine only which workers are asked, and
//     their free capacity determines only the order in which they are asked. Recent
//     quotes determine only which worker is claimed first. An old, empty or wrong hint
//     costs time or a refusal.
//   - 9, brokers keep nothing: the only state consists of undelivered cancellations,
//     recent decisions, and the quotes of the last second.
//   - 10, no is an answer: a refusal names the worker, the resource, the amount wanted
//     and the amount free. An absent worker has not refused the order (absent.go).
//
// The package does not validate orders, which is the broker's task. It does not hold capacity, and
// does not retry orders that were refused.
//
// An Exchange is safe for concurrent use. The goroutine of the first Place call for an order
// processes the order. A race adds one goroutine for each claim, and all of them have ended when
// Place returns. Run owns the goroutines that deliver cancellations. Each mutex guards one small
// structure (inflight, filled, refused, cancels, cache, recentPicks, rngSource). No mutex is
// held during I/O or while another one is taken.
package market

import (
	"context"

	"github.com/bourse-dev/bourse"
)

// Directory provides candidates. The returned members are hints, and only as current as the latest
// gossip.
type Directory interface {
	// Regions returns every region that has a worker, sorted.
	Regions() []bourse.Region
	// Candidates returns the workers of a region that accept orders. The caller may modify the
	// slice.
	Candidates(region bourse.Region) []bourse.Member
	// All returns the workers that are members, including those that do not accept orders, and the
	// cluster's absent workers. Each worker is in only one of the two lists. The caller must not
	// modify the slices.
	All() (here []bourse.Member, away []bourse.Absence)
}

// Trader sends requests to workers. Its methods return when ctx is done, and do not use their
// arguments after that.
type Trader interface {
	// Ask requests quotes for an order from many workers concurrently; see fabric.Fabric.
	Ask(ctx context.Context, to []bourse.Member, order *bourse.Order, answer func(bourse.Quote))
	// Claim asks one worker to fill the order, and returns the fill or the worker's refusal. If the
	// error is CodeUnavailable, the worker has not received the claim. After any other error, the
	// outcome is unknown.
	Claim(ctx context.Context, to bourse.Member, claim *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error)
	// Pullable asks a worker whether it can pull an image now, with the credentials of an
	// organization. It returns the worker's refusal, or nil if the worker can pull the image or if
	// that is unknown.
	Pullable(ctx context.Context, to bourse.Member, org, image string) *bourse.Refusal
	// Cancel undoes a worker's fill of the order, if there is one, and prevents the worker from filling the order
	// later.
	Cancel(ctx context.Context, to bourse.Member, order bourse.OrderID) (bourse.Cancellation, error)
}

// CancellationStore stores undelivered cancellations in the replicated view. A worker that returns
// reads them there, even if the broker no longer exists (invariant 7).
type CancellationStore interface {
	// RecordCancellation records that a worker must not fill the order, and must undo its fill if it has already filled
	// the order. Once RecordCancellation has returned nil, the record survives a crash of this process.
	RecordCancellation(ctx context.Context, order bourse.OrderID, worker bourse.WorkerID) error
	// CanceledOn returns the workers for which any broker has recorded a cancellation of the
	// order, as far as this process knows.
	CanceledOn(ctx context.Context, order bourse.OrderID) ([]bourse.WorkerID, error)
}
