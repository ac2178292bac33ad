package broker

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/lookup"

	"github.com/bourse-dev/bourse/broker/tenant"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/workload"
)

// failover orders copies of machines for proxies. Its methods are safe for concurrent use.
type failover struct {
	*Config

	apps     *lookup.Apps
	quota    *lookup.Checker
	machines *lookup.Machines
	secrets  *tenant.Secrets
	shared   coalescer
}

// order places an order for a copy of a machine, in the same region, on behalf of a proxy. original is the ID of the
// machine to copy. A proxy requests a copy when the machine cannot be started because its host is full. The copy is
// destroyed when it stops.
//
// The proxy specifies only the machine, which must meet the conditions of mayOrderLike. Quotas, secrets and validation
// apply as for any other order. Once the order has an ID, the result contains the ID even if there is an error. Errors:
// not_found, failed_precondition (the machine does not meet the conditions), rate_limited, and those of placing an
// order.
func (o *failover) order(ctx context.Context, original bourse.MachineID) (fabric.FailoverOrder, error) {
	if err := o.shared.enter(); err != nil {
		return fabric.FailoverOrder{}, err
	}
	defer o.shared.leave()
	order, err := o.orderLike(ctx, original)
	if err != nil {
		return fabric.FailoverOrder{}, err
	}
	return o.shared.do(ctx, &order, func(ctx context.Context) (fabric.FailoverOrder, error) { return o.place(ctx, order, original) })
}

// place places an order and returns its machine.
func (o *failover) place(ctx context.Context, order bourse.Order, original bourse.MachineID) (fabric.FailoverOrder, error) {
	out := fabric.FailoverOrder{Order: order.ID}
	if err := o.quota.MayHaveMachine(ctx, &order); err != nil {
		return out, err
	}
	fill, _, err := o.Exchange.Place(ctx, order)
	if err != nil {
		return out, err
	}
	m := &fill.Machine
	o.machines.Remember(m)
	o.machines.RememberReply(m)
	o.quota.PlacedMachine(&order)
	o.Log.Info("machine ordered for a proxy", slog.String("app", string(m.App)), slog.String("machine", string(m.ID)), slog.String("like", string(original)))
	out.Machine, out.Instance, out.Worker, out.Region = m.ID, m.Instance, m.Worker, m.Region
	return out, nil
}

// orderLike returns an order for a copy of a machine.
func (o *failover) orderLike(ctx context.Context, original bourse.MachineID) (bourse.Order, error) {
	owner, ok := o.Directory.ByTag(original.Tag())
	if !ok {
		return bourse.Order{}, errNotOrdered()
	}
	m, err := o.show(ctx, owner, original)
	if err != nil {
		return bourse.Order{}, err
	}
	app, err := o.apps.FindCached(ctx, m.App)
	if err != nil {
		return bourse.Order{}, err
	}
	if !m.OwnedBy(&app) {
		return bourse.Order{}, errNotOrdered()
	}
	if err := mayOrderLike(&m, o.Now()); err != nil {
		return bourse.Order{}, err
	}
	order := bourse.Order{ID: bourse.NewOrderID().In(app.ID), App: app, Regions: []bourse.Choice{{m.Region}}, Config: m.Config}
	order.Config.AutoDestroy = true
	if order.Secrets, order.AppKeys, err = o.secrets.Require(ctx, app.ID, 0); err != nil {
		return bourse.Order{}, err
	}
	return order, order.Validate()
}

func errNotOrdered() error { return bourse.Errorf(bourse.CodeNotFound, "machine not found") }

// show fetches the machine from its worker, because the view contains neither the machine's
// environment nor its files.
func (o *failover) show(ctx context.Context, owner bourse.Member, id bourse.MachineID) (bourse.Machine, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	return fabric.MachineShow.Call(ctx, o.Workers, owner, id)
}

// mayOrderLike returns nil if a machine may be copied for a proxy. The machine must be stopped or suspended, and must
// be configured to start when requests arrive. It must not be cordoned, leased or a standby, and must not use a volume.
// Errors: failed_precondition.
func mayOrderLike(m *bourse.Machine, now time.Time) error {
	no := func(why string) error {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s cannot be copied for a proxy: %s", m.ID, why)
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
	if len(m.Config.Standbys) > 0 {
		return no("it is a standby")
	}
	if slices.ContainsFunc(workload.Services(&m.Config), func(s workload.Service) bool { return s.Autostart }) {
		return nil
	}
	return no("autostart is off")
}
