package broker

import (
	"context"
	"log/slog"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/service"
)

// Elsewhere is what became of an order for a machine as another one is.
type Elsewhere struct {
	Order    bourse.OrderID    `json:"order"`
	Machine  bourse.MachineID  `json:"machine"`
	Instance bourse.InstanceID `json:"instance"`
	Worker   bourse.WorkerID   `json:"worker"`
	Region   bourse.Region     `json:"region"`
}

// maxElsewhere bounds the orders for proxies that are in progress.
const maxElsewhere = 32

// OrderElsewhere orders a machine as another one of its app is, in the same region, for
// a proxy that cannot have that one started: its host is full. The new one is
// destroyed when it stops: the app has its own machines for the next time.
//
// A proxy says which machine it means, and no more. It must be one that requests start,
// that is at rest, and that nothing keeps where it is; the app's quota, secrets and
// the rules of its order are as for any other order. The order's id is returned with
// an error, too, once there is one. Codes: not_found, failed_precondition (it is no
// such machine), rate_limited, and those of placing an order.
func (b *Broker) OrderElsewhere(ctx context.Context, like bourse.MachineID) (Elsewhere, error) {
	h := b.orders
	select {
	case b.elsewhere <- struct{}{}:
		defer func() { <-b.elsewhere }()
	default:
		return Elsewhere{}, bourse.Errorf(bourse.CodeRateLimited, "%d orders for proxies are in progress", maxElsewhere)
	}
	if err := ready(h.Directory); err != nil {
		return Elsewhere{}, err
	}
	order, err := h.orderLike(ctx, like)
	if err != nil {
		return Elsewhere{}, err
	}
	out := Elsewhere{Order: order.ID}
	if err := h.quota.MayHaveMachine(ctx, &order); err != nil {
		return out, err
	}
	fill, _, err := h.Exchange.Place(ctx, order)
	if err != nil {
		return out, err
	}
	m := &fill.Machine
	h.known.Remember(m)
	h.known.Note(m)
	h.quota.PlacedMachine(&order)
	h.Log.Info("machine ordered for a proxy", slog.String("app", string(m.App)), slog.String("machine", string(m.ID)), slog.String("like", string(like)))
	out.Machine, out.Instance, out.Worker, out.Region = m.ID, m.Instance, m.Worker, m.Region
	return out, nil
}

// orderLike makes the order of a machine as another one is.
func (h *orderHandler) orderLike(ctx context.Context, like bourse.MachineID) (bourse.Order, error) {
	owner, ok := h.Directory.ByTag(like.Tag())
	if !ok {
		return bourse.Order{}, errNoMachine()
	}
	m, err := h.showMachine(ctx, owner, like)
	if err != nil {
		return bourse.Order{}, err
	}
	app, err := h.apps.Recall(ctx, m.App)
	if err != nil {
		return bourse.Order{}, err
	}
	if !m.OwnedBy(&app) {
		return bourse.Order{}, errNoMachine()
	}
	if err := mayOrderLike(&m, h.Now()); err != nil {
		return bourse.Order{}, err
	}
	order := bourse.Order{ID: bourse.NewOrderID().In(app.ID), App: app, Regions: []bourse.Choice{{m.Region}}, Config: m.Config}
	order.Config.AutoDestroy = true
	if order.Secrets, err = h.secrets.Require(ctx, app.ID, 0); err != nil {
		return bourse.Order{}, err
	}
	return order, order.Validate()
}

// showMachine asks the owner: the view has neither environment nor files.
func (h *orderHandler) showMachine(ctx context.Context, owner bourse.Member, id bourse.MachineID) (bourse.Machine, error) {
	ctx, cancel := context.WithTimeout(ctx, h.Patience)
	defer cancel()
	return fabric.MachineShow.Call(ctx, h.Workers, owner, id)
}

// mayOrderLike reports failed_precondition for a machine that is not one to order
// another as: that a request does not start, or that something keeps where it is.
func mayOrderLike(m *bourse.Machine, now time.Time) error {
	no := func(why string) error {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "no machine is ordered as %s is: %s", m.ID, why)
	}
	switch {
	case m.State != bourse.StateStopped && m.State != bourse.StateSuspended:
		return no("it is " + string(m.State))
	case m.Cordoned:
		return no("it is cordoned")
	case !m.Lease.Expired(now):
		return no("it is leased")
	case len(m.Config.Mounts) > 0:
		return no("it has a volume")
	}
	if list, err := m.Config.StandsBy(); err != nil || len(list) > 0 {
		return no("it stands by for others")
	}
	services, err := service.Of(&m.Config)
	if err != nil {
		return no("its services cannot be read")
	}
	for i := range services {
		if services[i].Autostart {
			return nil
		}
	}
	return no("requests do not start it")
}
