package machines

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"

	"github.com/bourse-dev/bourse/worker/state"
)

// errFilled says that the order is filled here already.
var errFilled = errors.New("the order is filled already")

// Quote answers an order for a machine.
func (ms *Machines) Quote(ctx context.Context, order *bourse.Order) (bourse.Quote, error) {
	return ms.host.Quote(ctx, ms.state.Store, order, func(tx *store.Tx, q *bourse.Quote) (err error) {
		q.Filled, err = filledMachine(tx, order)
		return err
	})
}

// filledMachine returns the machine that fills the order here, if one does.
func filledMachine(tx *store.Tx, order *bourse.Order) (*bourse.Machine, error) {
	rec, ok, err := tx.Order(order.ID)
	if err != nil || !ok || rec.Machine == "" || rec.Canceled || state.Foreign(&rec, &order.App) {
		return nil, err
	}
	m, err := state.ReadMachine(tx, rec.Machine, state.RecentEvents)
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return nil, nil
	}
	return &m, err
}

// Claim fills an order for a machine, or returns the refusal. It answers when
// the machine has started (or been prepared, or failed to start, which is a
// refusal), or when ctx ends; the operation itself then goes on, and the order's
// id finds or cancels it.
func (ms *Machines) Claim(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	begin := time.Now()
	order := &c.Order
	refusal, err := ms.precheck(order)
	if errors.Is(err, errFilled) {
		return ms.filledBefore(ctx, order)
	}
	if err != nil || refusal != nil {
		return nil, refusal, err
	}
	m, started, err := ms.Begin(ctx, c, ms.recordOrder(c))
	if errors.Is(err, errFilled) {
		return ms.filledBefore(ctx, order)
	}
	if err != nil {
		refusal, err := ms.state.Refuse(err)
		return nil, refusal, err
	}
	claimed, id := time.Since(begin), m.ID
	if err = started(ctx); err == nil {
		m, err = ms.state.Machine(ctx, id)
	}
	switch code := bourse.CodeOf(err); {
	case err == nil:
		return &bourse.Fill{Machine: m, Claimed: claimed, Started: time.Since(begin) - claimed}, nil, nil
	case ctx.Err() != nil:
		return nil, nil, err
	case code == bourse.CodeCanceled:
		return nil, ms.state.Refusal(bourse.RefusedCanceled, "the order was canceled"), nil
	case code == bourse.CodeTimeout: // the daemon ends, and the operation goes on after the restart
		return nil, nil, err
	default:
		return nil, ms.Unfillable(ctx, order, id, err), nil
	}
}

// precheck spares the store a transaction for an order that is refused anyway.
// errFilled: it is filled here already, which may be why there is no room.
func (ms *Machines) precheck(order *bourse.Order) (refusal *bourse.Refusal, err error) {
	err = ms.state.Store.View(func(tx *store.Tx) error {
		if err := unfilled(tx, order); err != nil {
			return err
		}
		refusal, err = ms.host.Machine(tx, order, ms.host.Ledger.Running(&order.Config), time.Now())
		return err
	})
	return refusal, err
}

// unfilled reports errFilled for an order that a machine fills here.
func unfilled(tx *store.Tx, order *bourse.Order) error {
	m, err := filledMachine(tx, order)
	if err == nil && m != nil {
		return errFilled
	}
	return err
}

// Begin records a machine for the claim's order: the machine, what it takes,
// its order, by recordOrder, and the run that will start it, all in one
// transaction: the intent before every effect. started waits until it has
// started.
func (ms *Machines) Begin(ctx context.Context, c *bourse.Claim, recordOrder func(*store.Tx, *bourse.Machine) error) (bourse.Machine, func(context.Context) error, error) {
	for {
		m, err := ms.newMachine(c)
		if err != nil {
			return m, nil, ms.portless(ctx, &c.Order, err)
		}
		def := ms.ops.defs.of(&m).create
		if c.Order.SkipLaunch {
			def = ms.ops.defs.of(&m).prepare
		}
		req := machineRequest{Machine: m.ID, Boot: m.Boot.Number}
		if !IsPlain(&m) || m.Secrets > 0 || m.Config.ImageKind() == bourse.PollerImage {
			req.Until = untilOf(ctx, &m, &c.Order)
		}
		run, err := def.Start(ctx, ms.state.Engine, state.OfMachine(m.ID), req, fsm.StartOptions{
			Write: state.InTx(func(tx *store.Tx) error { return ms.recordClaim(tx, c, m, recordOrder) }),
		})
		switch {
		case errors.Is(err, errTaken):
			continue
		case err != nil:
			return m, nil, err
		}
		ms.state.Machines.Changed(m.ID)
		return m, func(ctx context.Context) error { _, err := run.Applied(ctx); return err }, nil
	}
}

// portless returns why an order has no machine for which there was no port: the
// last one may be that of an earlier claim's machine.
func (ms *Machines) portless(ctx context.Context, order *bourse.Order, cause error) error {
	if err := ms.state.Store.Sync(ctx); err != nil {
		return err
	}
	return ms.state.Store.View(func(tx *store.Tx) error {
		if err := unfilled(tx, order); err != nil {
			return err
		}
		return state.Refused{Refusal: *ms.state.Refusal(bourse.RefusedUnavailable, bourse.MessageOf(cause))}
	})
}

// errTaken says that an id, name or port made up for a machine is in use, or that a machine is not as it was read
// after all: make up another.
var errTaken = errors.New("taken")

func (ms *Machines) newMachine(c *bourse.Claim) (bourse.Machine, error) {
	order, now := &c.Order, time.Now().UTC()
	m := bourse.Machine{
		ID: bourse.NewMachineID(ms.state.Self.Tag), Name: order.Name, App: order.App.Name, AppID: order.App.ID,
		Worker: ms.state.Self.Worker, Region: ms.state.Self.Region,
		Order: order.ID, Placement: c.Placement, Instance: bourse.NewInstanceID(), State: bourse.StateCreated, Config: order.Config,
		Takes: ms.host.Ledger.Running(&order.Config), Cordoned: order.Cordoned,
		Secrets: order.Secrets, SkipSecrets: order.SkipSecrets, CreatedAt: now, UpdatedAt: now,
	}
	if m.Name == "" {
		m.Name = randomName()
	}
	if order.LeaseTTL > 0 {
		m.Lease = newLease(order.LeaseOwner, "", now.Add(time.Duration(order.LeaseTTL)*time.Second))
	}
	if ms.host.Private[m.Config.ImageKind()] {
		m.Network = order.App.PrivateNetwork()
		m.PrivateIP = bourse.PrivateAddress(m.Network, m.ID)
	}
	if order.SkipLaunch {
		m.Takes = admit.Resting(m.Takes)
	} else {
		m.State, m.Boot.Number = bourse.StateStarting, 1
	}
	var err error
	m.Boot.Port, err = ms.ops.portOf(&m)
	return m, err
}

// recordOrder returns what records that a machine has filled a claim's order.
func (ms *Machines) recordOrder(c *bourse.Claim) func(*store.Tx, *bourse.Machine) error {
	return func(tx *store.Tx, m *bourse.Machine) error {
		decision := c.Decision
		decision.Outcome, decision.Worker, decision.Machine = bourse.OutcomeFilled, ms.state.Self.Worker, m.ID
		return tx.PutOrder(store.OrderRecord{ID: c.Order.ID, Machine: m.ID, Decision: decision, At: m.CreatedAt})
	}
}

func (ms *Machines) recordClaim(tx *store.Tx, c *bourse.Claim, m bourse.Machine, recordOrder func(*store.Tx, *bourse.Machine) error) error {
	rec, known, err := tx.Order(c.Order.ID)
	if err != nil {
		return err
	}
	if known && rec.Machine != "" && !rec.Canceled && !state.Foreign(&rec, &c.Order.App) {
		return errFilled
	}
	refusal, err := ms.host.Machine(tx, &c.Order, ms.host.Ledger.Running(&c.Order.Config), time.Now())
	if err != nil {
		return err
	}
	if refusal != nil {
		return state.Refused{Refusal: *refusal}
	}
	if err := ms.untaken(tx, &m); err != nil {
		return err
	}
	if err := recordOrder(tx, &m); err != nil {
		return err
	}
	if err := ms.state.KeepApp(tx, c.Order.App); err != nil {
		return err
	}
	if err := drawHolds(tx, &c.Order, m.Takes); err != nil {
		return err
	}
	if !IsPlain(&m) || m.Config.Guest.GPUs > 0 {
		if err := ms.recordFit(tx, &m); err != nil {
			return err
		}
	}
	if err := tx.PutMachine(&m); err != nil {
		return err
	}
	if withSecrets(&m) {
		if err := keepKeys(tx, m.ID, c.AppKeys); err != nil {
			return err
		}
	}
	launch := bourse.Event{Type: bourse.EventLaunch, State: bourse.StateCreated, Source: bourse.SourceUser, By: c.Order.LeaseOwner, At: m.CreatedAt}
	if err := state.AppendEvent(tx, &m, "", launch); err != nil {
		return err
	}
	return nil
}

// recordFit records what m has beside its program: its address, volumes and
// devices.
func (ms *Machines) recordFit(tx *store.Tx, m *bourse.Machine) error {
	if m.PrivateIP.IsValid() {
		if err := address(tx, m); err != nil {
			return err
		}
	}
	refusal, err := ms.ops.volumes.Attach(tx, m)
	if err != nil {
		return err
	}
	if refusal == nil && m.State == bourse.StateStarting {
		if err := ms.host.TakeDevices(tx, m); err != nil {
			refusal = ms.state.Refusal(bourse.RefusedResource, bourse.MessageOf(err))
			refusal.Resource = string(bourse.GPUResource(m.Config.Guest.GPUKind))
		}
	}
	if refusal != nil {
		return state.Refused{Refusal: *refusal}
	}
	return nil
}

// untaken reports errTaken when what was made up for m is in use.
func (ms *Machines) untaken(tx *store.Tx, m *bourse.Machine) error {
	if _, err := tx.Machine(m.ID); err == nil {
		return errTaken
	}
	if _, taken, err := tx.MachineNamed(bourse.App{Name: m.App, ID: m.AppID}, m.Name); err != nil || taken {
		return errors.Join(err, errTaken)
	}
	return portUntaken(tx, m.ID, m.Boot.Port)
}

// filledBefore answers a repeated claim with the first one's machine, once
// that has settled.
func (ms *Machines) filledBefore(ctx context.Context, order *bourse.Order) (*bourse.Fill, *bourse.Refusal, error) {
	var m *bourse.Machine
	err := ms.state.Store.View(func(tx *store.Tx) error {
		var err error
		m, err = filledMachine(tx, order)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if m == nil {
		return nil, ms.state.Refusal(bourse.RefusedDriver, "the order's machine failed to start here"), nil
	}
	settled, err := ms.state.AwaitMachine(ctx, m.ID, func(m *bourse.Machine) bool { return m.State.Settled() })
	if err != nil {
		return nil, nil, fmt.Errorf("wait for the order's first claim: %w", err)
	}
	if settled.State == bourse.StateDestroyed { // it has lived, or never came to that
		return ms.filledAfterAll(order.ID, settled)
	}
	return &bourse.Fill{Machine: settled, Again: true}, nil, nil
}

// filledAfterAll reports whether an order was filled by a machine that is gone by
// now: one that could not be started is no longer its order's.
func (ms *Machines) filledAfterAll(id bourse.OrderID, gone bourse.Machine) (*bourse.Fill, *bourse.Refusal, error) {
	var rec store.OrderRecord
	err := ms.state.Store.View(func(tx *store.Tx) error {
		var err error
		rec, _, err = tx.Order(id)
		return err
	})
	switch {
	case err != nil:
		return nil, nil, err
	case rec.Machine != gone.ID:
		return nil, ms.state.Refusal(bourse.RefusedDriver, "the order's machine failed to start here"), nil
	}
	return &bourse.Fill{Machine: gone, Again: true}, nil, nil
}

// drawHolds records that a machine takes so much out of what its order's
// reservation holds, in the transaction that records the machine. A hold that
// is used up holds nothing, and its record stays until its end: the
// reservation is still known here.
func drawHolds(tx *store.Tx, order *bourse.Order, takes bourse.Amounts) error {
	holds, err := admit.Drawn(tx, order, takes, time.Now())
	for i := range holds {
		err = errors.Join(err, tx.PutHold(&holds[i]))
	}
	return err
}
