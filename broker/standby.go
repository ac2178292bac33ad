package broker

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// standingBy settles an order whose machine stands by for others: it is prepared, and
// started when one of them is lost. They must be machines of the order's app. Codes:
// invalid, unavailable (the worker of one does not answer, and the view has not heard
// of it). One with services waits all the same: no request starts it.
func (h *orderHandler) standingBy(ctx context.Context, order *bourse.Order) error {
	list, err := order.Config.StandsBy()
	if err != nil || len(list) == 0 {
		return err
	}
	order.SkipLaunch = true
	for _, id := range list {
		m, err := h.anyMachine(ctx, id)
		switch {
		case bourse.CodeOf(err) == bourse.CodeUnavailable:
			return err
		case err != nil || !m.OwnedBy(&order.App) || m.State == bourse.StateDestroyed:
			return bourse.Errorf(bourse.CodeInvalid, "invalid config.standbys: app %s has no machine %s", order.App.Name, id)
		}
	}
	return nil
}

// anyMachine returns what the view has of a machine, or else its owner.
func (h *orderHandler) anyMachine(ctx context.Context, id bourse.MachineID) (bourse.Machine, error) {
	if l, ok := h.known.Copy(ctx, id); ok {
		return l.Machine, nil
	}
	worker, ok := h.Directory.ByTag(id.Tag())
	if !ok {
		return bourse.Machine{}, errNoMachine()
	}
	ctx, cancel := context.WithTimeout(ctx, h.Patience)
	defer cancel()
	return fabric.MachineShow.Call(ctx, h.Workers, worker, id)
}
