package broker

import (
	"context"

	"github.com/bourse-dev/bourse"
)

// prepareStandby checks an order for a standby and changes it so that the machine is created but not started. A standby
// backs up one or more primary machines, which must belong to the order's app, and is started when one of them is lost.
// Errors: invalid; unavailable if the worker of a primary machine does not answer and the view does not contain that
// machine.
func (h *orderHandler) prepareStandby(ctx context.Context, order *bourse.Order) error {
	if len(order.Config.Standbys) == 0 {
		return nil
	}
	order.SkipLaunch = true
	for _, id := range order.Config.Standbys {
		switch has, err := h.machines.Has(ctx, &order.App, id); {
		case err != nil:
			return err
		case !has:
			return bourse.Errorf(bourse.CodeInvalid, "invalid config.standbys: app %s has no machine %s", order.App.Name, id)
		}
	}
	return nil
}
