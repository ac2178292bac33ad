package broker

import (
	"context"

	"github.com/bourse-dev/bourse"
)

// standingBy settles an order whose machine stands by for others: it is prepared, and
// started when one of them is lost. They must be machines of the order's app. Codes:
// invalid, unavailable (the worker of one does not answer, and the view has not heard
// of it). One with services waits all the same: no request starts it.
func (h *orderHandler) standingBy(ctx context.Context, order *bourse.Order) error {
	if len(order.Config.Standbys) == 0 {
		return nil
	}
	order.SkipLaunch = true
	for _, id := range order.Config.Standbys {
		switch has, err := h.known.Has(ctx, &order.App, id); {
		case err != nil:
			return err
		case !has:
			return bourse.Errorf(bourse.CodeInvalid, "invalid config.standbys: app %s has no machine %s", order.App.Name, id)
		}
	}
	return nil
}
