// Package market is the exchange.
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
}

// Trader is what the exchange asks of workers.
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
