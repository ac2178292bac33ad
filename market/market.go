// Package market is the exchange: it finds the worker that fills an order, or
// explains why none does.
//
// An order goes through four steps, each in its own file: candidates are
// taken from a [Directory] (sample.go), asked for quotes concurrently
// (quote.go), ranked by a pure function (rank.go, curves.go) and claimed in
// that order until one worker fills the order (claim.go; race.go when several
// are claimed at once). An order like a recent one is claimed by the workers'
// quotes for that, and workers are asked only if that fails (quotecache.go). Each choice of
// regions is tried in turn; an order that may be a repetition is looked for
// first (once.go, absent.go). What happened is recorded in a bourse.Decision
// (record.go), and refusal.go words a refusal.
//
// A reservation is several orders for capacity that are all filled or none
// (reserve.go).
//
// What the package promises, by the numbers of package bourse's invariants:
//
//   - 2, no pending: [Exchange.Place] returns before the order's deadline,
//     whatever workers do, as long as the Trader returns when its context ends.
//   - 3, region is law: quotes and fills from a worker that is outside the
//     choice being tried are ignored and undone; the directory's record of
//     its region counts for nothing.
//   - 7, once: a claim whose outcome is unknown is canceled at that worker
//     before another worker's fill counts, and no caller that was refused, or has
//     left, leaves a machine behind. What cannot be delivered at once is
//     handed to [Voids], where its worker finds it, and retried by
//     [Exchange.Run].
//   - 8, the view is a hint: candidates only determine which workers to ask, and what they
//     have free only in which order; recent quotes of workers, only
//     which to claim first. An old, empty or wrong hint costs time or a
//     refusal.
//   - 9, brokers keep nothing: the undelivered cancellations, the last
//     decisions and the quotes of the last second are all that they remember.
//   - 10, no is an answer: a refusal names worker, resource, wanted and free.
//     The silence of an absent worker is not a refusal (absent.go).
//
// It does not check orders (the edge does), does not hold capacity, and does
// not try again later.
//
// Concurrency: an Exchange is safe for concurrent use. An order is processed
// by the goroutine of the first Place call with it; a race adds one
// goroutine per claim, and all of them have ended when Place returns. Run owns
// the goroutines that deliver cancellations. Each mutex guards one small
// structure (inflight, filled, refused, voids, cache, chance), none is held over I/O or while
// another is taken.
package market

import (
	"context"

	"github.com/bourse-dev/bourse"
)

// Directory is where the exchange finds candidates. Its answers are a
// hint, as old as the last gossip.
type Directory interface {
	// Regions returns every region that has a worker, sorted.
	Regions() []bourse.Region
	// Candidates returns the workers of a region that take orders. The slice is
	// the caller's.
	Candidates(region bourse.Region) []bourse.Member
	// All returns the workers that are there, also those that take no orders, and
	// those that belong to the cluster and are not there: each is in one of the
	// two. The slices are shared.
	All() (here []bourse.Member, away []bourse.Absence)
}

// Trader is what the exchange asks of workers. Its methods return when ctx
// ends, and use what they were given no longer than that.
type Trader interface {
	// Ask puts an order to many workers side by side; see fabric.Fabric.
	Ask(ctx context.Context, to []bourse.Member, order *bourse.Order, answer func(bourse.Quote))
	// Claim fills the order on one worker, or returns its refusal. After an
	// error with CodeUnavailable the worker has not seen the claim; after any
	// other error the outcome is unknown.
	Claim(ctx context.Context, to bourse.Member, claim *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error)
	// Pullable asks a worker whether it can pull an image for an organization now. It
	// returns the worker's refusal, and nil if it can or that is not known.
	Pullable(ctx context.Context, to bourse.Member, org, image string) *bourse.Refusal
	// Cancel makes sure that the order is not filled by this worker, now or
	// later.
	Cancel(ctx context.Context, to bourse.Member, order bourse.OrderID) (bourse.Cancellation, error)
}

// Voids stores cancellations that could not be delivered: the
// replicated view. A worker that is back finds there which orders it must not
// keep, even if the broker has ended (invariant 7).
type Voids interface {
	// Void makes it known that the worker must not keep the order filled, now
	// or later. Without an error that outlives this process.
	Void(ctx context.Context, order bourse.OrderID, worker bourse.WorkerID) error
	// Voided returns the workers that any broker has recorded for an order, as
	// far as it is known here.
	Voided(ctx context.Context, order bourse.OrderID) ([]bourse.WorkerID, error)
}
