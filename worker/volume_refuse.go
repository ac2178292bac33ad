package worker

import (
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// The labels of a worker with volumes.
const (
	labelVolume    = "volume"
	labelEncrypted = "volume.encrypted"
)

// refuseVolume gives this worker's reason not to fill an order for a volume
// now, nil if there is none. A claim asks again in the transaction that takes.
func (w *Worker) refuseVolume(tx *store.Tx, order *bourse.Order) (*bourse.Refusal, error) {
	spec := order.Volume.WithDefaults()
	r := w.refuseVolumeEver(order, &spec)
	for _, ask := range []func() (*bourse.Refusal, error){
		func() (*bourse.Refusal, error) { return w.tries.refuse(order), nil },
		func() (*bourse.Refusal, error) { return refuseCanceled(tx, order) },
		func() (*bourse.Refusal, error) { return w.refuseSource(tx, order.App.Owns, &spec) },
		func() (*bourse.Refusal, error) { return refuseZone(tx, order.App, &spec) },
		func() (*bourse.Refusal, error) { return w.refuseRoom(tx, &spec) },
	} {
		if r != nil {
			break
		}
		var err error
		if r, err = ask(); err != nil {
			return nil, err
		}
	}
	if r != nil {
		r.Worker, r.Region = w.self.Worker, w.self.Region
	}
	return r, nil
}

// refuseVolumeEver gives the reasons that no other volume's end would remove.
func (w *Worker) refuseVolumeEver(order *bourse.Order, spec *bourse.VolumeOrder) *bourse.Refusal {
	if !named(order.Regions, w.self.Region) {
		return &bourse.Refusal{Reason: bourse.RefusedRegion, Detail: fmt.Sprintf("the worker stands in %s", w.self.Region)}
	}
	offers := w.volumes.host.Labels()
	if offers[labelVolume] == "" {
		return &bourse.Refusal{Reason: bourse.RefusedUnknown, Resource: labelVolume, Detail: "the worker has no volumes"}
	}
	if spec.Encrypted && offers[labelEncrypted] == "" {
		return &bourse.Refusal{Reason: bourse.RefusedUnknown, Resource: labelEncrypted, Detail: "the worker cannot encrypt volumes"}
	}
	return refuseLabels(order.Config.Requirements, w.labels.Load().all)
}

func refuseCanceled(tx *store.Tx, order *bourse.Order) (*bourse.Refusal, error) {
	rec, ok, err := tx.Order(order.ID)
	if err != nil || !ok || !rec.Canceled && !rec.Held && rec.Task == nil && !foreign(&rec, &order.App) {
		return nil, err
	}
	return &bourse.Refusal{Reason: bourse.RefusedCanceled, Detail: "the order was canceled"}, nil
}

// refuseSource judges what the volume is to be filled from, as far as this
// worker knows it.
func (w *Worker) refuseSource(tx *store.Tx, mine ownership, spec *bourse.VolumeOrder) (*bourse.Refusal, error) {
	id, tag := sourceOf(spec)
	no := func(format string, args ...any) (*bourse.Refusal, error) {
		return &bourse.Refusal{Reason: bourse.RefusedVolume, Resource: id, Detail: fmt.Sprintf(format, args...)}, nil
	}
	switch {
	case id == "":
		return nil, nil
	case tag != w.self.Tag && w.volumes.peers == nil:
		return no("the worker cannot reach the one that has %s", id)
	case tag != w.self.Tag:
		return nil, nil // its worker says so when it is asked for the content
	}
	have, err := localSource(tx, mine, spec, time.Now())
	switch {
	case bourse.CodeOf(err) == bourse.CodeNotFound:
		return no("%s", bourse.MessageOf(err))
	case err != nil:
		return nil, err
	case have.SizeGB > spec.SizeGB:
		return no("%s has %d GB, wanted %d: a volume never shrinks", id, have.SizeGB, spec.SizeGB)
	case have.Encrypted != spec.Encrypted:
		return no("a copy is encrypted when its source is, and %s is: %t", id, have.Encrypted)
	}
	return nil, nil
}

// sourceOf gives the id of what a volume is to be filled from, and the tag of
// the worker that has it; "" for a new one.
func sourceOf(spec *bourse.VolumeOrder) (string, bourse.WorkerTag) {
	switch {
	case spec.Snapshot != "":
		return string(spec.Snapshot), spec.Snapshot.Tag()
	case spec.Source != "":
		return string(spec.Source), spec.Source.Tag()
	}
	return "", 0
}

// localSource gives what a source is that this worker has, and had when it was
// claimed. CodeNotFound: there is none that can be read.
func localSource(tx *store.Tx, mine ownership, spec *bourse.VolumeOrder, claimed time.Time) (bourse.VolumeOrder, error) {
	if spec.Snapshot != "" {
		s, v, err := tx.Snapshot(spec.Snapshot)
		if err == nil && (!mine(v.App, v.AppID, v.CreatedAt) || s.State != bourse.SnapshotCreated || expired(&s, claimed)) {
			err = errNoSnapshot
		}
		have := v.Spec
		have.SizeGB = s.SizeGB
		return have, err
	}
	v, err := tx.Volume(spec.Source)
	if err == nil && (!mine(v.App, v.AppID, v.CreatedAt) || !v.State.Usable()) {
		err = bourse.Errorf(bourse.CodeNotFound, "volume %s cannot be read", spec.Source)
	}
	return v.Spec, err
}

// refuseZone keeps volumes apart that are to be: a worker is a zone.
func refuseZone(tx *store.Tx, app bourse.App, spec *bourse.VolumeOrder) (*bourse.Refusal, error) {
	if !spec.UniqueZone && !spec.UniqueZoneApp {
		return nil, nil
	}
	for v, err := range tx.VolumesOf(app) {
		if err != nil {
			return nil, err
		}
		switch v.State {
		case bourse.VolumeFailed, bourse.VolumeDestroying, bourse.VolumeDestroyed:
			continue
		case bourse.VolumeCreating, bourse.VolumeRestoring, bourse.VolumeHydrating, bourse.VolumeCreated, bourse.VolumeExtending:
		}
		if spec.UniqueZoneApp || v.Spec.Name == spec.Name {
			return &bourse.Refusal{
				Reason: bourse.RefusedZone, Resource: string(v.ID),
				Detail: fmt.Sprintf("the worker has volume %s (%s) of app %s", v.ID, v.Spec.Name, app.Name),
			}, nil
		}
	}
	return nil, nil
}

// refuseRoom asks the ledger for the volume's disk, and whether the machine
// that is to use it would fit beside it.
func (w *Worker) refuseRoom(tx *store.Tx, spec *bourse.VolumeOrder) (*bourse.Refusal, error) {
	committed, err := tx.CommittedAt(time.Now())
	if err != nil {
		return nil, err
	}
	wants := bourse.Amounts{}
	if spec.Compute != nil {
		wants = spec.Compute.Takes(w.ledger.shared)
	}
	wants = wants.Plus(bourse.Amount{Resource: bourse.ResourceDisk, Amount: int64(spec.Disk())})
	return w.fits(committed, wants.Sorted()), nil
}
