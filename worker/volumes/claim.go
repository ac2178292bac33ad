package volumes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// errIDInUse is returned if a new volume's random id is already in use.
var errIDInUse = errors.New("taken")

// Claim fills an order for a volume, or returns a refusal. If the volume has no source, Claim returns once the volume
// has been created. If it has a source, Claim returns once the volume is recorded, and the volume is filled in the
// background.
func (vs *Volumes) Claim(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	begin := time.Now()
	v, run, err := vs.record(ctx, c)
	if err != nil {
		fill, refusal, err := vs.admit.Answer(err)
		if fill != nil {
			return vs.filledBefore(ctx, &c.Order, fill.Volume.ID)
		}
		return nil, refusal, err
	}
	claimed := time.Since(begin)
	if v.State == bourse.VolumeCreating {
		var refusal *bourse.Refusal
		if v, refusal, err = vs.awaitCreated(ctx, v.ID, run); err != nil || refusal != nil {
			return nil, refusal, err
		}
	}
	return &bourse.Fill{Volume: &v, Claimed: claimed, Started: time.Since(begin) - claimed}, nil, nil
}

// awaitCreated waits until a claimed volume has been created, and returns the volume, or a refusal if it could not be
// created.
func (vs *Volumes) awaitCreated(ctx context.Context, id bourse.VolumeID, run *fsm.Handle[result]) (bourse.Volume, *bourse.Refusal, error) {
	err := state.Started(ctx, run)
	switch {
	case err == nil:
		v, err := vs.Record(ctx, id)
		return v, nil, err
	case ctx.Err() != nil:
		return bourse.Volume{}, nil, err
	}
	switch bourse.CodeOf(err) {
	case bourse.CodeTimeout: // the daemon is stopping; the run continues after the daemon's restart
		return bourse.Volume{}, nil, err
	case bourse.CodeCanceled:
		return bourse.Volume{}, vs.admit.Refusal(bourse.RefusedCanceled, "the order was canceled"), nil
	case bourse.CodeInsufficient:
		return bourse.Volume{}, vs.admit.Refusal(bourse.RefusedUnavailable, bourse.MessageOf(err)), nil
	default:
		return bourse.Volume{}, vs.admit.Refusal(bourse.RefusedDriver, bourse.MessageOf(err)), nil
	}
}

// record decides whether to fill a claim's order. If so, one transaction records the volume, its resources, its order
// and the run that will create the volume, before anything happens on the host.
func (vs *Volumes) record(ctx context.Context, c *bourse.Claim) (bourse.Volume, *fsm.Handle[result], error) {
	if err := vs.admit.Precheck(vs.state.Store, &c.Order); err != nil {
		return bourse.Volume{}, nil, err
	}
	for {
		now := time.Now().UTC()
		v := bourse.Volume{
			ID: bourse.NewVolumeID(vs.state.Self.Tag), App: c.Order.App.Name, AppID: c.Order.App.ID, Worker: vs.state.Self.Worker, Region: vs.state.Self.Region,
			Order: c.Order.ID, Placement: c.Placement, State: bourse.VolumeCreating, Spec: c.Order.Volume.WithDefaults(), CreatedAt: now, UpdatedAt: now,
		}
		def := vs.defs.fill
		switch {
		case v.Spec.Snapshot != "":
			v.State = bourse.VolumeRestoring
		case v.Spec.Source != "":
			v.State = bourse.VolumeHydrating
		default:
			def = vs.defs.create
		}
		v.Takes = Takes(&v)
		run, err := vs.begin(ctx, def, request{Volume: v.ID}, func(tx *store.Tx) error { return vs.recordClaim(tx, c, v) })
		if !errors.Is(err, errIDInUse) {
			return v, run, err
		}
	}
}

func (vs *Volumes) recordClaim(tx *store.Tx, c *bourse.Claim, v bourse.Volume) error {
	if _, err := vs.admit.Take(tx, &c.Order, time.Now()); err != nil {
		return err
	}
	if _, err := tx.Volume(v.ID); err == nil {
		return errIDInUse
	}
	decision := c.Decision
	decision.Outcome, decision.Worker, decision.Volume = bourse.OutcomeFilled, vs.state.Self.Worker, v.ID
	if err := tx.PutOrder(store.OrderRecord{ID: c.Order.ID, Volume: v.ID, Decision: decision, At: v.CreatedAt}); err != nil {
		return err
	}
	if err := state.MergeApp(tx, c.Order.App); err != nil {
		return err
	}
	return putRecord(tx, &v, "", "create")
}

// filledBefore answers a repeated claim. It waits until the order's first claim has created the volume or has failed.
func (vs *Volumes) filledBefore(ctx context.Context, order *bourse.Order, id bourse.VolumeID) (*bourse.Fill, *bourse.Refusal, error) {
	if _, err := vs.Await(ctx, id, func(v *bourse.Volume) bool { return v.State != bourse.VolumeCreating }); err != nil {
		return nil, nil, fmt.Errorf("wait for the order's first claim: %w", err)
	}
	return vs.admit.Repeat(vs.state.Store, order)
}

// makeStep creates an order's volume. If that fails, it records the volume as destroyed, and the claim is answered with
// a refusal that contains the reason.
func (vs *Volumes) makeStep(ctx context.Context, r *volumeRun) fsm.Outcome {
	v, err := vs.current(r.Request.Volume)
	if err != nil {
		return fsm.Abort(err)
	}
	if v.State != bourse.VolumeCreating { // the volume was destroyed in the meantime
		return fsm.Abort(bourse.Errorf(bourse.CodeFailedPrecondition, "volume %s is %s", v.ID, v.State))
	}
	err = vs.host.Create(ctx, v.ID, v.Spec)
	switch {
	case err == nil:
		return fsm.Done(state.InTx(func(tx *store.Tx) error { return settle(tx, v.ID, "create") }))
	case !isFinal(err) && r.Attempt+1 < makeAttempts:
		return fsm.Retry(err)
	}
	if left := vs.host.Destroy(ctx, v.ID); left != nil {
		return fsm.Retry(errors.Join(err, left))
	}
	return fsm.Abort(err, state.InTx(func(tx *store.Tx) error { return recordNotCreated(tx, &v, err) }))
}

// settle records that a volume is now usable.
func settle(tx *store.Tx, id bourse.VolumeID, what string) error {
	_, err := changeRecord(tx, id, what, func(v *bourse.Volume) (bool, error) {
		if !v.State.CanBecome(bourse.VolumeCreated) {
			return false, nil
		}
		v.State = bourse.VolumeCreated
		return true, nil
	})
	return err
}

// recordNotCreated records that an order's volume could not be created, and that the order was
// refused.
func recordNotCreated(tx *store.Tx, v *bourse.Volume, cause error) error {
	if rec, ok, err := tx.Order(v.Order); err != nil {
		return err
	} else if ok && rec.Volume == v.ID {
		rec.Volume, rec.Decision.Outcome = "", bourse.OutcomeRefused
		if err := tx.PutOrder(rec); err != nil {
			return err
		}
	}
	for _, next := range []bourse.VolumeState{bourse.VolumeFailed, bourse.VolumeDestroying, bourse.VolumeDestroyed} {
		if _, err := changeRecord(tx, v.ID, "fail", func(v *bourse.Volume) (bool, error) {
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
