package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// refused carries a refusal out of a transaction as an error, which undoes it.
type refused struct{ bourse.Refusal }

func (r refused) Error() string { return r.Detail }

// errFilled says that the order is filled here already.
var errFilled = errors.New("the order is filled already")

// claim fills an order here, or gives the refusal. It answers when the
// machine has started (or been prepared, or failed to start, which is a
// refusal), or when ctx ends; the operation itself then goes on, and the
// order's id finds or cancels it.
func (w *Worker) claim(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	switch c.Order.Kind() {
	case bourse.KindVolume:
		return w.claimVolume(ctx, c)
	case bourse.KindHold:
		return w.reserve(ctx, c)
	case bourse.KindTask:
		return w.claimTask(ctx, c)
	case bourse.KindMachine:
	}
	return w.claimMachine(ctx, c)
}

// claimMachine is the work of claim for an order for a machine.
func (w *Worker) claimMachine(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	begin := time.Now()
	order := &c.Order
	refusal, err := w.precheck(order)
	if errors.Is(err, errFilled) {
		return w.filledBefore(ctx, order)
	}
	if err != nil || refusal != nil {
		return nil, refusal, err
	}
	m, run, err := w.record(ctx, c)
	if r, ok := errors.AsType[refused](err); ok {
		return nil, &r.Refusal, nil
	}
	if errors.Is(err, errFilled) {
		return w.filledBefore(ctx, order)
	}
	if bourse.CodeOf(err) == bourse.CodeUnavailable { // the disk is full, or worse: nothing was recorded
		return nil, w.refusal(bourse.RefusedUnavailable, "the worker cannot write its store: "+err.Error()), nil
	}
	if err != nil {
		return nil, nil, err
	}
	w.machineChanged(m.ID)
	claimed := time.Since(begin)
	started, err := w.appliedMachine(ctx, m.ID, run)
	switch code := bourse.CodeOf(err); {
	case err == nil:
		return &bourse.Fill{Machine: started, Claimed: claimed, Started: time.Since(begin) - claimed}, nil, nil
	case ctx.Err() != nil:
		return nil, nil, err
	case code == bourse.CodeCanceled:
		return nil, w.refusal(bourse.RefusedCanceled, "the order was canceled"), nil
	case code == bourse.CodeTimeout: // the daemon ends, and the operation goes on after the restart
		return nil, nil, err
	default:
		return nil, w.unfillable(order, err), nil
	}
}

// unfillable gives the refusal for a machine that could not be started.
func (w *Worker) unfillable(order *bourse.Order, err error) *bourse.Refusal {
	reason, about := bourse.RefusedDriver, ""
	switch bourse.CodeOf(err) {
	case bourse.CodeNotFound:
		reason, about = bourse.RefusedImage, order.Config.Image
	case bourse.CodeInsufficient:
		reason, about = bourse.RefusedResource, resourceImages
		if order.Config.Image == bourse.ImagePull {
			about = resourcePollers
		}
	case bourse.CodeUnavailable:
		reason = bourse.RefusedUnavailable
	case bourse.CodeFailedPrecondition: // it was destroyed before it came to its start
		reason = bourse.RefusedCanceled
	default:
	}
	r := w.refusal(reason, bourse.MessageOf(err))
	r.Resource = about
	return r
}

func (w *Worker) refusal(reason bourse.RefusalReason, detail string) *bourse.Refusal {
	return &bourse.Refusal{Worker: w.self.Worker, Region: w.self.Region, Reason: reason, Detail: detail}
}

// precheck spares the store a transaction for an order that is refused anyway.
// errFilled: it is filled here already, which may be why there is no room.
func (w *Worker) precheck(order *bourse.Order) (refusal *bourse.Refusal, err error) {
	err = w.store.View(func(tx *store.Tx) error {
		if err := unfilled(tx, order); err != nil {
			return err
		}
		refusal, err = w.refuse(tx, order, w.ledger.running(&order.Config))
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

// record writes the machine, what it takes, its order and the run that will
// start it, all in one transaction: the intent before every effect.
func (w *Worker) record(ctx context.Context, c *bourse.Claim) (bourse.Machine, *fsm.Handle[machineResult], error) {
	for {
		m, err := w.newMachine(&c.Order)
		if err != nil {
			return m, nil, w.portless(ctx, &c.Order, err)
		}
		def := w.defs.of(&m).create
		if c.Order.SkipLaunch {
			def = w.defs.of(&m).prepare
		}
		req := machineRequest{Machine: m.ID, Boot: m.Boot.Number}
		if !plain(&m) || isPull(m.Config.Image) {
			req.Until = m.CreatedAt.Add(c.Order.Deadline())
		}
		run, err := def.Start(ctx, w.engine, resourceOf(m.ID), req, fsm.StartOptions{
			Write: inTx(func(tx *store.Tx) error { return w.recordClaim(tx, c, m) }),
		})
		if !errors.Is(err, errTaken) {
			return m, run, err
		}
	}
}

// portless gives why an order has no machine for which there was no port: the
// last one may be that of an earlier claim's machine.
func (w *Worker) portless(ctx context.Context, order *bourse.Order, cause error) error {
	if err := w.store.Sync(ctx); err != nil {
		return err
	}
	return w.store.View(func(tx *store.Tx) error {
		if err := unfilled(tx, order); err != nil {
			return err
		}
		return refused{*w.refusal(bourse.RefusedUnavailable, bourse.MessageOf(cause))}
	})
}

// errTaken says that an id, name or port made up for a machine is in use
// after all: make up another.
var errTaken = errors.New("taken")

func (w *Worker) newMachine(order *bourse.Order) (bourse.Machine, error) {
	now := time.Now().UTC()
	m := bourse.Machine{
		ID: bourse.NewMachineID(w.self.Tag), Name: order.Name, App: order.App.Name, AppID: order.App.ID,
		Worker: w.self.Worker, Region: w.self.Region,
		Order: order.ID, Instance: bourse.NewInstanceID(), State: bourse.StateCreated, Config: order.Config,
		Takes: w.ledger.running(&order.Config), Cordoned: order.Cordoned, CreatedAt: now, UpdatedAt: now,
	}
	if m.Name == "" {
		m.Name = randomName()
	}
	if order.LeaseTTL > 0 {
		m.Lease = newLease(order.LeaseOwner, "", now.Add(time.Duration(order.LeaseTTL)*time.Second))
	}
	if w.private(&m.Config) {
		m.Network = order.App.PrivateNetwork()
		m.PrivateIP = bourse.PrivateAddress(m.Network, m.ID)
	}
	if order.SkipLaunch {
		m.Takes = resting(m.Takes)
		return m, nil
	}
	m.State = bourse.StateStarting
	m.Boot.Number = 1
	var err error
	m.Boot.Port, err = w.pickPort(&m)
	return m, err
}

func (w *Worker) recordClaim(tx *store.Tx, c *bourse.Claim, m bourse.Machine) error {
	rec, known, err := tx.Order(c.Order.ID)
	if err != nil {
		return err
	}
	if known && rec.Machine != "" && !rec.Canceled && !foreign(&rec, &c.Order.App) {
		return errFilled
	}
	refusal, err := w.refuse(tx, &c.Order, w.ledger.running(&c.Order.Config))
	if err != nil {
		return err
	}
	if refusal != nil {
		return refused{*refusal}
	}
	if err := w.untaken(tx, &m); err != nil {
		return err
	}
	decision := c.Decision
	decision.Outcome, decision.Worker, decision.Machine = bourse.OutcomeFilled, w.self.Worker, m.ID
	if c.Order.Kind() == bourse.KindTask {
		err = tx.TaskBegun(w.coldRecord(&c.Order, &m))
	} else {
		err = tx.PutOrder(store.OrderRecord{ID: c.Order.ID, Machine: m.ID, Decision: decision, At: m.CreatedAt})
	}
	if err != nil {
		return err
	}
	if err := w.keepApp(tx, c.Order.App); err != nil {
		return err
	}
	if err := drawHolds(tx, &c.Order, m.Takes); err != nil {
		return err
	}
	if !plain(&m) || m.Config.Guest.GPUs > 0 {
		if err := w.recordFit(tx, &m); err != nil {
			return err
		}
	}
	if err := tx.PutMachine(&m); err != nil {
		return err
	}
	launch := bourse.Event{Type: bourse.EventLaunch, State: bourse.StateCreated, Source: bourse.SourceUser, At: m.CreatedAt}
	if err := appendEvent(tx, &m, "", launch); err != nil {
		return err
	}
	return nil
}

// recordFit records what m has beside its program: its address, volumes and
// devices.
func (w *Worker) recordFit(tx *store.Tx, m *bourse.Machine) error {
	if m.PrivateIP.IsValid() {
		if err := address(tx, m); err != nil {
			return err
		}
	}
	refusal, err := w.attachVolumes(tx, m)
	if err != nil {
		return err
	}
	if refusal == nil && m.State == bourse.StateStarting {
		if err := w.takeDevices(tx, m); err != nil {
			refusal = w.refusal(bourse.RefusedResource, bourse.MessageOf(err))
			refusal.Resource = string(bourse.GPUResource(m.Config.Guest.GPUKind))
		}
	}
	if refusal != nil {
		return refused{*refusal}
	}
	return nil
}

// untaken reports errTaken when what was made up for m is in use.
func (w *Worker) untaken(tx *store.Tx, m *bourse.Machine) error {
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
func (w *Worker) filledBefore(ctx context.Context, order *bourse.Order) (*bourse.Fill, *bourse.Refusal, error) {
	var m *bourse.Machine
	err := w.store.View(func(tx *store.Tx) error {
		var err error
		m, err = filledMachine(tx, order)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if m == nil {
		return nil, w.refusal(bourse.RefusedDriver, "the order's machine failed to start here"), nil
	}
	settled, err := w.await(ctx, m.ID, func(m *bourse.Machine) bool { return m.State.Settled() })
	if err != nil {
		return nil, nil, fmt.Errorf("wait for the order's first claim: %w", err)
	}
	if settled.State == bourse.StateDestroyed { // it has lived, or never came to that
		return w.filledAfterAll(order.ID, settled)
	}
	return &bourse.Fill{Machine: settled, Again: true}, nil, nil
}

// filledAfterAll tells whether an order was filled by a machine that is gone by
// now: one that could not be started is no longer its order's.
func (w *Worker) filledAfterAll(id bourse.OrderID, gone bourse.Machine) (*bourse.Fill, *bourse.Refusal, error) {
	var rec store.OrderRecord
	err := w.store.View(func(tx *store.Tx) error {
		var err error
		rec, _, err = tx.Order(id)
		return err
	})
	switch {
	case err != nil:
		return nil, nil, err
	case rec.Machine != gone.ID:
		return nil, w.refusal(bourse.RefusedDriver, "the order's machine failed to start here"), nil
	}
	return &bourse.Fill{Machine: gone, Again: true}, nil, nil
}

// keepApp is mergeApp of the app that an order is of. An app that was deleted,
// or that another one of its name has replaced, gets nothing any more.
func (w *Worker) keepApp(tx *store.Tx, app bourse.App) error {
	if known, ok, err := tx.App(app.Name); err != nil {
		return err
	} else if ok && app.ID != "" {
		if now := known.Merge(app); now.ID != app.ID || now.DeletedAt != nil {
			return refused{*w.refusal(bourse.RefusedApp, "app "+string(app.Name)+" was deleted, or another one was made of its name")}
		}
	}
	return mergeApp(tx, app)
}

// mergeApp merges an app's record into the worker's own copy.
func mergeApp(tx *store.Tx, app bourse.App) error {
	old, ok, err := tx.App(app.Name)
	if err != nil {
		return err
	}
	merged := app
	if ok {
		if merged = old.Merge(app); merged.ID == old.ID && (merged.DeletedAt == nil) == (old.DeletedAt == nil) {
			return nil
		}
	}
	return tx.PutApp(merged)
}
