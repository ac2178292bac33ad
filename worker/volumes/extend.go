package volumes

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// Extend enlarges a volume, even while it is in use, and returns once it has grown. The additional disk space is taken
// from the ledger before the volume grows. Errors: invalid if the size is too large or is smaller than the current
// size, insufficient_capacity if the worker's disk does not have enough space, failed_precondition if the volume is not
// usable or is already being extended.
func (vs *Volumes) Extend(ctx context.Context, id bourse.VolumeID, sizeGB int64) (bourse.Volume, error) {
	run, err := vs.begin(ctx, vs.defs.extend, request{Volume: id}, func(tx *store.Tx) error {
		_, err := changeRecord(tx, id, "extend", func(v *bourse.Volume) (bool, error) { return true, vs.mayExtend(tx, v, sizeGB) })
		return err
	})
	if err != nil {
		return bourse.Volume{}, err
	}
	if _, err := run.Applied(ctx); err != nil {
		return bourse.Volume{}, err
	}
	v, err := vs.Get(ctx, id)
	v.NeedsRestart = v.Machine != "" && !vs.host.ExtendsLive(id)
	return v, err
}

// mayExtend changes v's state to extending, or returns an error if the volume cannot be
// extended.
func (vs *Volumes) mayExtend(tx *store.Tx, v *bourse.Volume, sizeGB int64) error {
	switch {
	case v.State == bourse.VolumeDestroyed:
		return errNoVolume
	case v.State != bourse.VolumeCreated:
		return bourse.Errorf(bourse.CodeFailedPrecondition, "unable to extend volume from current state: '%s'", v.State)
	case sizeGB > bourse.MaxVolumeGB:
		return bourse.Errorf(bourse.CodeInvalid, "invalid size_gb %d: use up to %d", sizeGB, bourse.MaxVolumeGB)
	case sizeGB < v.Spec.SizeGB:
		return bourse.Errorf(bourse.CodeInvalid, "invalid size_gb %d: volume %s already has %d GB, and volumes cannot shrink", sizeGB, v.ID, v.Spec.SizeGB)
	}
	v.State, v.TargetGB = bourse.VolumeExtending, sizeGB
	r, err := vs.updateResources(tx, v)
	if err == nil && r != nil {
		err = insufficient(r, "could not extend volume "+string(v.ID))
	}
	return err
}

// extendStep enlarges a volume to the size in its record. If the host cannot enlarge the volume, the volume keeps its
// size.
func (vs *Volumes) extendStep(ctx context.Context, r *volumeRun) fsm.Outcome {
	v, err := vs.current(r.Request.Volume)
	if err != nil {
		return fsm.Abort(err)
	}
	if v.State != bourse.VolumeExtending {
		return fsm.Finish() // the volume has already been extended
	}
	err = vs.host.Extend(ctx, v.ID, v.TargetGB)
	if err != nil && !isFinal(err) {
		return fsm.Retry(err)
	}
	write := state.InTx(func(tx *store.Tx) error { return vs.recordExtended(tx, v.ID, err == nil) })
	if err != nil {
		return fsm.Abort(err, write)
	}
	return fsm.Done(write)
}

// recordExtended records whether a volume has grown. If it has, recordExtended also updates the volume's size in the
// config of the machine that mounts it.
func (vs *Volumes) recordExtended(tx *store.Tx, id bourse.VolumeID, grown bool) error {
	v, err := changeRecord(tx, id, "extend", func(v *bourse.Volume) (bool, error) {
		if v.State != bourse.VolumeExtending {
			return false, nil
		}
		if grown {
			v.Spec.SizeGB = max(v.Spec.SizeGB, v.TargetGB)
		}
		v.State, v.TargetGB = bourse.VolumeCreated, 0
		v.Takes = Takes(v)
		return true, nil
	})
	if err != nil || !grown || v.Machine == "" {
		return err
	}
	_, err = state.ChangeMachine(tx, v.Machine, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		i := slices.IndexFunc(m.Config.Mounts, func(mount bourse.Mount) bool { return mount.Volume == id })
		if i < 0 || m.Config.Mounts[i].SizeGB == v.Spec.SizeGB || m.State == bourse.StateDestroyed {
			return false, nil, nil
		}
		m.Config.Mounts[i].SizeGB = v.Spec.SizeGB
		vs.state.Machines.Submitted(m.ID)
		return true, nil, nil
	})
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return nil
	}
	return err
}

// Change changes whether a volume's snapshots are scheduled, and how long they are kept.
func (vs *Volumes) Change(ctx context.Context, id bourse.VolumeID, change fabric.VolumeChange) (bourse.Volume, error) {
	var v bourse.Volume
	err := vs.state.Store.Update(ctx, func(tx *store.Tx) error {
		var err error
		v, err = changeRecord(tx, id, "change", func(v *bourse.Volume) (bool, error) {
			if !isLive(v) {
				return false, errNoVolume
			}
			if change.RetentionDays != nil {
				v.Spec.RetentionDays = *change.RetentionDays
			}
			if change.ScheduledSnaps != nil {
				v.Spec.ScheduledSnaps = *change.ScheduledSnaps
			}
			return true, v.Spec.Validate()
		})
		return err
	})
	if err != nil { // after an error, the transaction may still be writing to v, so do not read it
		vs.state.Volumes.Submitted(id)
		return bourse.Volume{}, err
	}
	vs.state.Volumes.Applied(id)
	return v, nil
}

const (
	growInterval   = 15 * time.Second
	growRetryDelay = 5 * time.Minute // delay after a failed extension
)

// targetSize returns the size to which a volume should grow automatically, as configured in its machine's mount. The
// size is 0 if the volume should not grow. percent is the percentage of the volume's space that is in use.
func targetSize(mount *bourse.Mount, v *bourse.Volume, usage bourse.VolumeUsage) (sizeGB, percent int64) {
	if mount.ExtendThresholdPercent <= 0 || mount.AddSizeGB <= 0 || v.State != bourse.VolumeCreated || usage.Blocks <= 0 {
		return 0, 0
	}
	// Like df, this treats the space that is reserved for root as used.
	used := usage.Blocks - usage.BlocksFree
	if total := used + usage.BlocksAvail; used > 0 && total > 0 {
		percent = int64(float64(used) / float64(total) * 100)
	}
	limit := int64(bourse.MaxVolumeGB)
	if mount.SizeGBLimit > 0 {
		limit = min(limit, mount.SizeGBLimit)
	}
	sizeGB = min(v.Spec.SizeGB+mount.AddSizeGB, limit)
	if percent < int64(mount.ExtendThresholdPercent) || sizeGB <= v.Spec.SizeGB {
		return 0, percent
	}
	return sizeGB, percent
}

// grower extends volumes automatically, as configured in their machines' mounts. Only the goroutine that calls run may
// use it.
type grower struct {
	vs      *Volumes
	refused map[bourse.VolumeID]refusal
}

// refusal records a failed automatic extension.
type refusal struct {
	sizeGB int64
	at     time.Time
}

// attached contains a volume, and the volume's mount from its machine's config.
type attached struct {
	volume bourse.Volume
	mount  bourse.Mount
}

// run checks the volumes periodically until ctx is done.
func (g *grower) run(ctx context.Context) {
	tick := time.NewTicker(growInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		list, err := g.growing()
		if err != nil && ctx.Err() == nil {
			g.vs.state.Log.Warn("list growing volumes failed", "err", err)
		}
		for id := range g.refused {
			if _, ok := list[id]; !ok {
				delete(g.refused, id)
			}
		}
		for _, a := range list {
			g.extendIfFull(ctx, &a, time.Now())
		}
	}
}

// growing returns the volumes whose mounts configure automatic growth.
func (g *grower) growing() (map[bourse.VolumeID]attached, error) {
	out := map[bourse.VolumeID]attached{}
	err := g.vs.state.Store.View(func(tx *store.Tx) error {
		for v, err := range tx.Volumes() {
			if err != nil {
				return err
			}
			if v.Machine == "" || v.State != bourse.VolumeCreated {
				continue
			}
			m, err := tx.Machine(v.Machine)
			if bourse.CodeOf(err) == bourse.CodeNotFound {
				continue
			}
			if err != nil {
				return err
			}
			for _, mount := range m.Config.Mounts {
				if mount.Volume == v.ID && mount.ExtendThresholdPercent > 0 {
					out[v.ID] = attached{v, mount}
				}
			}
		}
		return nil
	})
	return out, err
}

// extendIfFull extends a volume if it has reached its mount's threshold. It records the result in an event of the
// volume's machine. Repeated failures with the same target size are recorded only once. It retries a failed extension
// after growRetryDelay.
func (g *grower) extendIfFull(ctx context.Context, a *attached, now time.Time) {
	v := &a.volume
	last, ok := g.refused[v.ID]
	if ok && now.Before(last.at.Add(growRetryDelay)) {
		return
	}
	usage, err := g.vs.host.Usage(ctx, v.ID)
	if err != nil {
		return // skip the volume until the next check
	}
	size, percent := targetSize(&a.mount, v, usage)
	if size == 0 {
		delete(g.refused, v.ID)
		return
	}
	_, err = g.vs.Extend(ctx, v.ID, size)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		delete(g.refused, v.ID)
		g.addEvent(ctx, v, fmt.Sprintf("volume %s was %d %% full and now has %d GB", v.ID, percent, size))
		return
	}
	g.refused[v.ID] = refusal{size, now}
	if last.sizeGB != size {
		g.vs.state.Log.Warn("extend full volume failed", "volume", v.ID, "size_gb", size, "err", err)
		g.addEvent(ctx, v, fmt.Sprintf("volume %s is %d %% full and cannot grow to %d GB: %s", v.ID, percent, size, bourse.MessageOf(err)))
	}
}

// addEvent adds an event to a volume's machine.
func (g *grower) addEvent(ctx context.Context, v *bourse.Volume, what string) {
	err := g.vs.state.Commit(ctx, v.Machine, func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, v.Machine, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			if m.State == bourse.StateDestroyed {
				return false, nil, nil
			}
			return true, []bourse.Event{{Type: bourse.EventExtend, State: m.State, Source: bourse.SourceWorker, Reason: what}}, nil
		})
		return err
	})
	if err != nil && ctx.Err() == nil && bourse.CodeOf(err) != bourse.CodeNotFound {
		g.vs.state.Log.Warn("record event about volume growth failed", "volume", v.ID, "machine", v.Machine, "err", err)
	}
}
