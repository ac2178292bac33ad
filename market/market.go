// Package market is the exchange: it finds the worker that fills an order, or
// says why none does.
//
// An order goes through four steps, each in its own file: candidates are
// taken from a [Directory] (sample.go), asked for quotes side by side
// (quote.go), ranked by a pure function (rank.go, curves.go) and claimed in
// that order until one worker fills the order (claim.go; race.go when several
// are claimed at once). An order like the last one is claimed by what workers
// said then, and asked about only if that fails (standing.go). Each choice of
// regions is tried in turn; an order that may be a repetition is looked for
// first (once.go, absent.go). What happened is written down in a bourse.Decision
// (record.go), and a no is put into words by refusal.go.
//
// A reservation is several orders for capacity that are all filled or none
// (reserve.go).
//
// What the package promises, by the numbers of package bourse's invariants:
//
//   - 2, no pending: [Exchange.Place] returns before the order's deadline,
//     whatever workers do, as long as the Trader returns when its context ends.
//   - 3, region is law: quotes and fills from a worker that stands outside the
//     choice being tried are ignored and undone; what the directory said of
//     its region counts for nothing.
//   - 7, once: a claim whose outcome is unknown is canceled at that worker
//     before another worker's fill counts, and nobody who was told no, or has
//     left, leaves a machine behind. What cannot be delivered at once is
//     handed to [Voids], where its worker finds it, and retried by
//     [Exchange.Run].
//   - 8, the view is a hint: candidates only say whom to ask, and what they
//     have free only in which order; what workers said a moment before, only
//     whom to claim first. An old, empty or wrong hint costs time or a
//     refusal.
//   - 9, brokers keep nothing: the undelivered cancellations, the last
//     decisions and the quotes of the last second are all the memory there is.
//   - 10, no is an answer: a refusal names worker, resource, wanted and free.
//     What an absent worker would have said is no refusal (absent.go).
//
// It does not check orders (the edge does), does not hold capacity, and does
// not try again later.
//
// Concurrency: an Exchange is safe for concurrent use. An order is worked on
// by the goroutine of the Place call that brought it first; a race adds one
// goroutine per claim, and all of them have ended when Place returns. Run owns
// the goroutines that deliver cancellations. Each mutex guards one small
// structure (flights, filled, refused, voids, standing, chance), none is held over I/O or while
// another is taken.
package market

import (
	"context"

	"github.com/bourse-dev/bourse"
)

// Directory is what the exchange asks to find candidates. Its answers are a
// hint, as old as the last gossip.
type Directory interface {
	// Regions gives every region that has a worker, sorted.
	Regions() []bourse.Region
	// Candidates gives the workers of a region that take orders. The slice is
	// the caller's.
	Candidates(region bourse.Region) []bourse.Member
	// Workers returns all workers that are there, also those that take no
	// orders. The slice is the caller's.
	Workers() []bourse.Member
	// Absent returns the workers that belong to the cluster and are not there.
	// The slice is shared.
	Absent() []bourse.Absence
}

// Trader is what the exchange asks of workers. Its methods return when ctx
// ends, and use what they were given no longer than that.
type Trader interface {
	// Ask puts an order to many workers side by side; see fabric.Fabric.
	Ask(ctx context.Context, to []bourse.Member, order *bourse.Order, answer func(bourse.Quote))
	// Claim fills the order on one worker, or gives its refusal. After an
	// error with CodeUnavailable the worker has not seen the claim; after any
	// other error the outcome is unknown.
	Claim(ctx context.Context, to bourse.Member, claim *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error)
	// Cancel makes sure that the order is not filled by this worker, now or
	// later.
	Cancel(ctx context.Context, to bourse.Member, order bourse.OrderID) (bourse.Cancellation, error)
}

// Voids is where cancellations wait that could not be delivered: the
// replicated view. A worker that is back finds there which orders it must not
// keep, whatever has become of the broker (invariant 7).
type Voids interface {
	// Void makes it known that the worker must not keep the order filled, now
	// or later. Without an error that outlives this process.
	Void(ctx context.Context, order bourse.OrderID, worker bourse.WorkerID) error
	// Voided gives the workers of which that was made known, by any broker, as
	// far as it is known here.
	Voided(ctx context.Context, order bourse.OrderID) ([]bourse.WorkerID, error)
}
