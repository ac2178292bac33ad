package broker

import (
	"context"

	"github.com/bourse-dev/bourse"
)

// prepareStandby prepares an order for a standby. The machine is created without starting it, and is started when one of
// the machines that it backs up is lost. Those must be machines of the order's app. Requests do not start a standby,
// even if it has services. Errors: invalid, unavailable (the worker of one of the machines does not answer, and the
// view does not have the machine).
func (h *orderHandler) prepareStandby(ctx context.Context, order *bourse.Order) error {
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
