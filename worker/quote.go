package worker

import (
	"context"
	"fmt"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// quote answers an order from the worker's own truth. It holds nothing and
// writes nothing.
func (w *Worker) quote(ctx context.Context, order *bourse.Order) (bourse.Quote, error) {
	w.tries.asked(order)
	if order.Kind() == bourse.KindVolume {
		return w.quoteVolume(ctx, order)
	}
	if order.Warm() {
		return w.quoteTask(ctx, order)
	}
	q := bourse.Quote{Worker: w.self.Worker, Region: w.self.Region, Load: w.load.read()}
	if order.Named { // only then can it be filled already, perhaps a moment ago
		if err := w.store.Sync(ctx); err != nil {
			return q, err
		}
	}
	q.Takes = w.ledger.running(&order.Config)
	q.MissingBytes = w.missing(order)
	err := w.store.View(func(tx *store.Tx) error {
		if err := filled(tx, order, &q); err != nil || q.Fill() != nil {
			return err
		}
		committed, drawn, _, err := w.committedTo(tx, order, q.Takes)
		if err != nil {
			return err
		}
		q.Accounts = w.ledger.accounts(committed)
		q.AppMachines = tx.LivingOf(order.App)
		q.Held = drawn != nil && slices.Equal(drawn, q.Takes)
		q.Refusal, err = w.refuse(tx, order, q.Takes)
		return err
	})
	if q.Refusal != nil { // it says what was short; nobody ranks the rest
		q.Accounts, q.Takes = nil, nil
	}
	return q, err
}

// filled notes in q what fills the order here, if anything does.
func filled(tx *store.Tx, order *bourse.Order, q *bourse.Quote) (err error) {
	switch order.Kind() {
	case bourse.KindHold:
		q.FilledHold, err = filledHold(tx, order)
	case bourse.KindTask: // its machine is not shown
		var before *bourse.TaskResult
		before, _, err = taskBefore(tx, order.ID, &order.App)
		q.FilledTask = withoutAnswer(before)
	case bourse.KindMachine:
		q.Filled, err = filledMachine(tx, order)
	case bourse.KindVolume: // see quoteVolume
	}
	return err
}

// filledMachine gives the machine that fills the order here, if one does.
func filledMachine(tx *store.Tx, order *bourse.Order) (*bourse.Machine, error) {
	rec, ok, err := tx.Order(order.ID)
	if err != nil || !ok || rec.Machine == "" || rec.Canceled || foreign(&rec, &order.App) {
		return nil, err
	}
	m, err := readMachine(tx, rec.Machine, recentEvents)
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return nil, nil
	}
	return &m, err
}

// refuse gives this worker's reason not to fill the order now, nil if there
// is none. A claim asks again in the transaction that takes.
func (w *Worker) refuse(tx *store.Tx, order *bourse.Order, takes bourse.Amounts) (*bourse.Refusal, error) {
	r := w.refuseEver(order)
	if r == nil {
		r = w.tries.refuse(order)
	}
	if r == nil {
		var err error
		if r, err = refuseID(tx, order); err != nil {
			return nil, err
		}
	}
	if r == nil && order.Name != "" {
		if _, taken, err := tx.MachineNamed(order.App, order.Name); err != nil {
			return nil, err
		} else if taken {
			r = &bourse.Refusal{Reason: bourse.RefusedName, Detail: fmt.Sprintf("app %s has a machine named %s", order.App.Name, order.Name)}
		}
	}
	if r == nil && len(order.Config.Mounts) > 0 {
		var err error
		if r, err = w.refuseVolumes(tx, order); err != nil {
			return nil, err
		}
	}
	if r == nil {
		committed, _, gone, err := w.committedTo(tx, order, takes)
		if err != nil {
			return nil, err
		}
		if r = gone; r == nil {
			r = w.fits(committed, takes)
		}
	}
	if r == nil {
		r = w.refusePort(tx, order)
	}
	if r == nil && order.Config.Image == bourse.ImagePull && !order.SkipLaunch {
		r = w.cfg.Pull.Room(pullLimits(&order.Config))
	}
	if r != nil {
		r.Worker, r.Region = w.self.Worker, w.self.Region
	}
	return r, nil
}

// refuseEver gives the reasons that no other machine's end would remove.
func (w *Worker) refuseEver(order *bourse.Order) *bourse.Refusal {
	if !named(order.Regions, w.self.Region) {
		return &bourse.Refusal{Reason: bourse.RefusedRegion, Detail: fmt.Sprintf("the worker stands in %s", w.self.Region)}
	}
	if order.Kind() == bourse.KindHold && order.Config.Image == "" { // whatever will run
		return refuseLabels(order.Config.Requirements, w.labels.Load().all)
	}
	if !w.runs(order.Config.Image) {
		return &bourse.Refusal{
			Reason: bourse.RefusedImage, Resource: order.Config.Image,
			Detail: fmt.Sprintf("no driver here runs image %s (drivers: %v)", bourse.Quoted(order.Config.Image), w.drivers()),
		}
	}
	if r := w.refuseImage(order); r != nil {
		return r
	}
	return refuseLabels(order.Config.Requirements, w.labels.Load().of(order.Config.Image))
}

// refuseLabels compares the labels that an order requires with a worker's.
func refuseLabels(requirements bourse.Requirements, labels map[string]string) *bourse.Refusal {
	for name, want := range requirements {
		have, known := labels[name]
		switch {
		case want.Count != 0: // a countable: the ledger knows it or refuses
		case !known:
			return &bourse.Refusal{Reason: bourse.RefusedUnknown, Resource: name, Detail: fmt.Sprintf("the worker has no label %s", name)}
		case have != want.Label:
			return &bourse.Refusal{
				Reason: bourse.RefusedLabel, Resource: name,
				Detail: fmt.Sprintf("label %s is %s here, wanted %s", name, bourse.Quoted(have), bourse.Quoted(want.Label)),
			}
		}
	}
	return nil
}

func named(regions []bourse.Choice, here bourse.Region) bool {
	return slices.ContainsFunc(regions, func(choice bourse.Choice) bool { return slices.Contains(choice, here) })
}
