package market_test

import (
	"context"

	"github.com/bourse-dev/bourse"
)

// watched is a link that stores the latest order and claim that were sent over it.
type watched struct {
	*Link
	asked   *bourse.Order
	claimed bourse.Claim
}

func (w *watched) Ask(ctx context.Context, to []bourse.Member, order *bourse.Order, answer func(bourse.Quote)) {
	w.asked = order
	w.Link.Ask(ctx, to, order, answer)
}

func (w *watched) Claim(ctx context.Context, to bourse.Member, claim *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	w.claimed = *claim
	return w.Link.Claim(ctx, to, claim)
}
