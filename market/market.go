// Package market implements the exchange: it finds the worker that fills an order, or explains why no worker does.
//
// An order goes through four steps, each in its own file. Candidates are taken from a [Directory] (sample.go), asked
// for quotes concurrently (quote.go), ranked by a pure function (rank.go, curves.go) and claimed in that order until
// one worker fills the order (claim.go; race.go if several are claimed at once). If a similar order was quoted
// recently, those quotes are used, and workers are asked only if that fails (quotecache.go). The choices of regions
// are tried in turn. An order that may be a repetition is looked up on all workers first (once.go, absent.go). The
// outcome is recorded in a bourse.Decision (record.go), and refusal.go words a refusal.
//
// A reservation consists of several orders for capacity that are all filled or none (reserve.go).
//
// The package keeps these of package bourse's invariants:
//
//   - 2, no pending: [Exchange.Place] returns before the order's deadline,
//     whatever workers do, as long as the Trader returns when its context ends.
//   - 3, region is law: quotes and fills from a worker outside the choice being
//     tried are ignored and undone, whatever region the directory lists for it.
//   - 7, once: a claim whose outcome is unknown is canceled at that worker
//     before another worker's fill counts. No caller that was refused, or has
//     left, leaves a machine behind. Cancellations that cannot be delivered at
//     once are written to [CancellationStore], where the worker finds them, and retried by
//     [Exchange.Run].
//   - 8, the view is a hint: candidates only determine which workers to ask, and
//     their free capacity only the order; recent quotes only determine which worker
//     to claim first. An old, empty or wrong hint costs time or a refusal.
//   - 9, brokers keep nothing: undelivered cancellations, recent decisions and
//     the quotes of the last second are the only state.
//   - 10, no is an answer: a refusal names worker, resource, wanted and free.
//     The silence of an absent worker is not a refusal (absent.go).
//
// The package does not validate orders (the broker does), does not hold capacity, and does not retry refused orders.
//
// An Exchange is safe for concurrent use. An order is processed by the goroutine of the first Place call for it. A
// race adds one goroutine per claim, and all of them have ended when Place returns. Run owns the goroutines that
// deliver cancellations. Each mutex guards one small structure (inflight, filled, refused, undelivered, cache, chance);
// none is held during I/O or while another one is taken.
package market

import (
	"context"

	"github.com/bourse-dev/bourse"
)

// Directory provides the candidates. Its answers are hints, as old as the last gossip.
type Directory interface {
	// Regions returns every region that has a worker, sorted.
	Regions() []bourse.Region
	// Candidates returns the workers of a region that accept orders. The caller owns the slice.
	Candidates(region bourse.Region) []bourse.Member
	// All returns the workers that are present, including those that do not accept orders, and those that belong to
	// the cluster but are absent. Each worker is in one of the two lists. The slices are shared.
	All() (here []bourse.Member, away []bourse.Absence)
}

// Trader sends requests to workers. Its methods return when ctx ends, and do not use their arguments after that.
type Trader interface {
	// Ask requests quotes for an order from many workers concurrently; see fabric.Fabric.
	Ask(ctx context.Context, to []bourse.Member, order *bourse.Order, answer func(bourse.Quote))
	// Claim fills the order on one worker or returns the worker's refusal. After an error with CodeUnavailable the
	// worker has not seen the claim. After any other error the outcome is unknown.
	Claim(ctx context.Context, to bourse.Member, claim *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error)
	// Pullable asks a worker whether it can pull an image for an organization now. It returns the worker's refusal,
	// or nil if the worker can or the answer is unknown.
	Pullable(ctx context.Context, to bourse.Member, org, image string) *bourse.Refusal
	// Cancel ensures that the order is not filled by this worker, now or later.
	Cancel(ctx context.Context, to bourse.Member, order bourse.OrderID) (bourse.Cancellation, error)
}

// CancellationStore stores cancellations that could not be delivered, in the replicated view. A worker that returns finds there
// which orders it must not keep, even if the broker has ended (invariant 7).
type CancellationStore interface {
	// RecordCancellation records that the worker must not keep the order filled, now or later. If it returns nil, the record
	// outlives this process.
	RecordCancellation(ctx context.Context, order bourse.OrderID, worker bourse.WorkerID) error
	// CanceledOn returns the workers for which any broker has recorded a cancellation of the order, as far as this
	// process knows.
	CanceledOn(ctx context.Context, order bourse.OrderID) ([]bourse.WorkerID, error)
}
