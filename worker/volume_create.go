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

// quoteVolume is quote of an order for a volume.
func (w *Worker) quoteVolume(ctx context.Context, order *bourse.Order) (bourse.Quote, error) {
	q := bourse.Quote{Worker: w.self.Worker, Region: w.self.Region, Load: w.load.read()}
	if order.Named { // only then can it be filled already, perhaps a moment ago
		if err := w.store.Sync(ctx); err != nil {
			return q, err
		}
	}
	err := w.store.View(func(tx *store.Tx) error {
		var err error
		if q.FilledVolume, err = filledVolume(tx, order); err != nil || q.FilledVolume != nil {
			return err
		}
		if q.Refusal, err = w.refuseVolume(tx, order); err != nil || q.Refusal != nil {
			return err
		}
		committed, err := tx.CommittedAt(time.Now())
		q.Accounts = w.ledger.accounts(committed)
		return err
	})
	if err == nil && q.Refusal == nil && q.FilledVolume == nil {
		spec := order.Volume.WithDefaults()
		q.Takes = bourse.Amounts{{Resource: bourse.ResourceDisk, Amount: int64(spec.Disk())}}
	}
	return q, err
}

// filledVolume gives the volume that fills the order here, if one does.
func filledVolume(tx *store.Tx, order *bourse.Order) (*bourse.Volume, error) {
	rec, ok, err := tx.Order(order.ID)
	if err != nil || !ok || rec.Volume == "" || rec.Canceled || foreign(&rec, &order.App) {
		return nil, err
	}
	v, err := tx.Volume(rec.Volume)
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return nil, nil
	}
	return &v, err
}

// claimVolume is claim of an order for a volume. A new volume is there when it
// answers; one that is filled from elsewhere is recorded then, and is filled
// in the background.
func (w *Worker) claimVolume(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	begin := time.Now()
	var refusal *bourse.Refusal
	err := w.store.View(func(tx *store.Tx) error { // spares a transaction for what is refused anyway
		filled, err := filledVolume(tx, &c.Order)
		if err == nil && filled == nil {
			refusal, err = w.refuseVolume(tx, &c.Order)
		}
		return err
	})
	if err != nil || refusal != nil {
		return nil, refusal, err
	}
	v, run, err := w.recordVolume(ctx, c)
	if r, ok := errors.AsType[refused](err); ok {
		return nil, &r.Refusal, nil
	}
	switch {
	case errors.Is(err, errFilled):
		return w.volumeFilledBefore(ctx, &c.Order)
	case bourse.CodeOf(err) == bourse.CodeUnavailable: // the disk is full, or worse: nothing was recorded
		return nil, w.refusal(bourse.RefusedUnavailable, "the worker cannot write its store: "+err.Error()), nil
	case err != nil:
		return nil, nil, err
	}
	claimed := time.Since(begin)
	if v.State == bourse.VolumeCreating {
		if v, refusal, err = w.madeVolume(ctx, v.ID, run); err != nil || refusal != nil {
			return nil, refusal, err
		}
	}
	return &bourse.Fill{Volume: &v, Claimed: claimed, Started: time.Since(begin) - claimed}, nil, nil
}

// madeVolume waits until a claimed volume has been made.
func (w *Worker) madeVolume(ctx context.Context, id bourse.VolumeID, run *fsm.Handle[volumeResult]) (bourse.Volume, *bourse.Refusal, error) {
	_, err := run.Applied(ctx)
	switch {
	case err == nil:
		v, err := w.volume(ctx, id)
		return v, nil, err
	case ctx.Err() != nil:
		return bourse.Volume{}, nil, err
	}
	switch bourse.CodeOf(err) {
	case bourse.CodeCanceled:
		return bourse.Volume{}, w.refusal(bourse.RefusedCanceled, "the order was canceled"), nil
	case bourse.CodeInsufficient:
		return bourse.Volume{}, w.refusal(bourse.RefusedUnavailable, bourse.MessageOf(err)), nil
	default:
		return bourse.Volume{}, w.refusal(bourse.RefusedDriver, bourse.MessageOf(err)), nil
	}
}

// recordVolume writes the volume, what it takes, its order and the run that
// will make it, all in one transaction: the intent before every effect.
func (w *Worker) recordVolume(ctx context.Context, c *bourse.Claim) (bourse.Volume, *fsm.Handle[volumeResult], error) {
	for {
		now := time.Now().UTC()
		v := bourse.Volume{
			ID: bourse.NewVolumeID(w.self.Tag), App: c.Order.App.Name, AppID: c.Order.App.ID, Worker: w.self.Worker, Region: w.self.Region,
			Order: c.Order.ID, State: bourse.VolumeCreating, Spec: c.Order.Volume.WithDefaults(), CreatedAt: now, UpdatedAt: now,
		}
		def := w.volumes.defs.fill
		switch {
		case v.Spec.Snapshot != "":
			v.State = bourse.VolumeRestoring
		case v.Spec.Source != "":
			v.State = bourse.VolumeHydrating
		default:
			def = w.volumes.defs.create
		}
		v.Takes = volumeTakes(&v)
		run, err := w.beginVolume(ctx, def, volumeRequest{Volume: v.ID}, func(tx *store.Tx) error { return w.recordVolumeClaim(tx, c, v) })
		if !errors.Is(err, errTaken) {
			return v, run, err
		}
	}
}

func (w *Worker) recordVolumeClaim(tx *store.Tx, c *bourse.Claim, v bourse.Volume) error {
	rec, known, err := tx.Order(c.Order.ID)
	if err != nil {
		return err
	}
	if known && rec.Volume != "" && !rec.Canceled && !foreign(&rec, &c.Order.App) {
		return errFilled
	}
	refusal, err := w.refuseVolume(tx, &c.Order)
	if err != nil {
		return err
	}
	if refusal != nil {
		return refused{*refusal}
	}
	if _, err := tx.Volume(v.ID); err == nil {
		return errTaken
	}
	decision := c.Decision
	decision.Outcome, decision.Worker, decision.Volume = bourse.OutcomeFilled, w.self.Worker, v.ID
	if err := tx.PutOrder(store.OrderRecord{ID: c.Order.ID, Volume: v.ID, Decision: decision, At: v.CreatedAt}); err != nil {
		return err
	}
	if err := w.keepApp(tx, c.Order.App); err != nil {
		return err
	}
	return putVolume(tx, &v, "", "create")
}

// volumeFilledBefore answers a repeated claim with the first one's volume, once
// that has been made.
func (w *Worker) volumeFilledBefore(ctx context.Context, order *bourse.Order) (*bourse.Fill, *bourse.Refusal, error) {
	var v *bourse.Volume
	err := w.store.View(func(tx *store.Tx) error {
		var err error
		v, err = filledVolume(tx, order)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if v == nil {
		return nil, w.refusal(bourse.RefusedDriver, "the order's volume could not be made here"), nil
	}
	made, err := w.awaitVolume(ctx, v.ID, func(v *bourse.Volume) bool { return v.State != bourse.VolumeCreating })
	if err != nil {
		return nil, nil, fmt.Errorf("wait for the order's first claim: %w", err)
	}
	return &bourse.Fill{Volume: &made, Again: true}, nil, nil
}

// makeVolume makes an order's volume. When that is impossible the order is not
// filled here: the volume ends as destroyed, and the claim is answered with
// the reason.
func (w *Worker) makeVolume(ctx context.Context, r *volumeRun) fsm.Outcome {
	v, err := w.volumeNow(r.Request.Volume)
	if err != nil {
		return fsm.Abort(err)
	}
	if v.State != bourse.VolumeCreating { // destroyed meanwhile
		return fsm.Abort(bourse.Errorf(bourse.CodeFailedPrecondition, "volume %s is %s", v.ID, v.State))
	}
	err = w.volumes.host.Create(ctx, v.ID, v.Spec)
	switch {
	case err == nil:
		return fsm.Done(inTx(func(tx *store.Tx) error { return settleVolume(tx, v.ID, "create") }))
	case !isAnswer(err) && r.Attempt+1 < makeAttempts:
		return fsm.Retry(err)
	}
	if left := w.volumes.host.Destroy(ctx, v.ID); left != nil {
		return fsm.Retry(errors.Join(err, left))
	}
	return fsm.Abort(err, inTx(func(tx *store.Tx) error { return unmakeVolume(tx, &v, err) }))
}

// settleVolume makes a volume one that can be used.
func settleVolume(tx *store.Tx, id bourse.VolumeID, what string) error {
	_, err := changeVolume(tx, id, what, func(v *bourse.Volume) (bool, error) {
		if !v.State.CanBecome(bourse.VolumeCreated) {
			return false, nil
		}
		v.State = bourse.VolumeCreated
		return true, nil
	})
	return err
}

// unmakeVolume records that an order's volume could not be made.
func unmakeVolume(tx *store.Tx, v *bourse.Volume, cause error) error {
	if rec, ok, err := tx.Order(v.Order); err != nil {
		return err
	} else if ok && rec.Volume == v.ID {
		rec.Volume, rec.Decision.Outcome = "", bourse.OutcomeRefused
		if err := tx.PutOrder(rec); err != nil {
			return err
		}
	}
	for _, next := range []bourse.VolumeState{bourse.VolumeFailed, bourse.VolumeDestroying, bourse.VolumeDestroyed} {
		if _, err := changeVolume(tx, v.ID, "fail", func(v *bourse.Volume) (bool, error) {
			if !v.State.CanBecome(next) {
				return false, nil
			}
			v.State, v.Error, v.Takes = next, bourse.MessageOf(cause), nil
			return true, nil
		}); err != nil {
			return err
		}
	}
	return nil
}
