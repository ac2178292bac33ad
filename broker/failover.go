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

// FailoverExchange fills orders.
type FailoverExchange interface {
	// Place fills the order or says why no worker would.
	Place(ctx context.Context, order bourse.Order) (bourse.Fill, bourse.Decision, error)
}

// FailoverDirectory finds members of the cluster.
type FailoverDirectory interface {
	// ByTag finds the owner of the machines whose ids begin with the tag.
	ByTag(tag bourse.WorkerTag) (bourse.Member, bool)
}

// FailoverConfig configures a Failover. All fields are required.
type FailoverConfig struct {
	Exchange  FailoverExchange
	Directory FailoverDirectory
	Workers   fabric.Fabric
	Apps      *lookup.Apps
	Quota     *lookup.Checker
	Machines  *lookup.Machines
	Secrets   *tenant.Secrets
	Now       func() time.Time
	Patience  time.Duration // for the owner of a machine
	Log       *slog.Logger
}

// Failover are those of one broker for proxies. Make them with [NewFailover]; its methods are safe
// for concurrent use.
type Failover struct {
	config FailoverConfig
	shared together
}

// NewFailover makes orders. It starts nothing.
func NewFailover(c FailoverConfig) *Failover { return &Failover{config: c} }

// Order orders a machine as another one of its app is, in the same region, for
// a proxy that cannot have that one started: its host is full. The new one is
// destroyed when it stops: the app has its own machines for the next time.
//
// A proxy says which machine it means, and no more. It must be one that requests start,
// that is at rest, and that nothing keeps where it is; the app's quota, secrets and
// the rules of its order are as for any other order. The order's id is returned with
// an error, too, once there is one. Codes: not_found, failed_precondition (it is no
// such machine), rate_limited, and those of placing an order.
func (o *Failover) Order(ctx context.Context, like bourse.MachineID) (fabric.FailoverOrder, error) {
	if err := o.shared.enter(); err != nil {
		return fabric.FailoverOrder{}, err
	}
	defer o.shared.leave()
	order, err := o.orderLike(ctx, like)
	if err != nil {
		return fabric.FailoverOrder{}, err
	}
	return o.shared.do(ctx, &order, func(ctx context.Context) (fabric.FailoverOrder, error) { return o.place(ctx, order, like) })
}

// place has an order filled.
func (o *Failover) place(ctx context.Context, order bourse.Order, like bourse.MachineID) (fabric.FailoverOrder, error) {
	c, out := &o.config, fabric.FailoverOrder{Order: order.ID}
	if err := c.Quota.MayHaveMachine(ctx, &order); err != nil {
		return out, err
	}
	fill, _, err := c.Exchange.Place(ctx, order)
	if err != nil {
		return out, err
	}
	m := &fill.Machine
	c.Machines.Remember(m)
	c.Machines.Note(m)
	c.Quota.PlacedMachine(&order)
	c.Log.Info("machine ordered for a proxy", slog.String("app", string(m.App)), slog.String("machine", string(m.ID)), slog.String("like", string(like)))
	out.Machine, out.Instance, out.Worker, out.Region = m.ID, m.Instance, m.Worker, m.Region
	return out, nil
}

// orderLike makes the order of a machine as another one is.
func (o *Failover) orderLike(ctx context.Context, like bourse.MachineID) (bourse.Order, error) {
	c := &o.config
	owner, ok := c.Directory.ByTag(like.Tag())
	if !ok {
		return bourse.Order{}, errNotOrdered()
	}
	m, err := o.show(ctx, owner, like)
	if err != nil {
		return bourse.Order{}, err
	}
	app, err := c.Apps.Recall(ctx, m.App)
	if err != nil {
		return bourse.Order{}, err
	}
	if !m.OwnedBy(&app) {
		return bourse.Order{}, errNotOrdered()
	}
	if err := mayOrderLike(&m, c.Now()); err != nil {
		return bourse.Order{}, err
	}
	order := bourse.Order{ID: bourse.NewOrderID().In(app.ID), App: app, Regions: []bourse.Choice{{m.Region}}, Config: m.Config}
	order.Config.AutoDestroy = true
	if order.Secrets, order.AppKeys, err = c.Secrets.Require(ctx, app.ID, 0); err != nil {
		return bourse.Order{}, err
	}
	return order, order.Validate()
}

func errNotOrdered() error { return bourse.Errorf(bourse.CodeNotFound, "machine not found") }

// show asks the owner: the view has neither environment nor files.
func (o *Failover) show(ctx context.Context, owner bourse.Member, id bourse.MachineID) (bourse.Machine, error) {
	ctx, cancel := context.WithTimeout(ctx, o.config.Patience)
	defer cancel()
	return fabric.MachineShow.Call(ctx, o.config.Workers, owner, id)
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
	if slices.ContainsFunc(workload.Services(&m.Config), func(s workload.Service) bool { return s.Autostart }) {
		return nil
	}
	return no("requests do not start it")
}
