package admit

import (
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// supportsVolume refuses a volume that the worker could not create even if it were idle.
func (h *Host) supportsVolume(spec bourse.VolumeOrder) *bourse.Refusal {
	if h.VolumeLabels[LabelVolume] == "" {
		return &bourse.Refusal{Reason: bourse.RefusedUnknown, Resource: LabelVolume, Detail: "the worker does not support volumes"}
	}
	if spec.Encrypted && h.VolumeLabels[bourse.LabelEncrypted] == "" {
		return &bourse.Refusal{Reason: bourse.RefusedUnknown, Resource: bourse.LabelEncrypted, Detail: "the worker cannot encrypt volumes"}
	}
	return nil
}

// volume returns the checks for an order that requests a volume. The checks also fill in d.
func (h *Host) volume(tx *store.Tx, order *bourse.Order, now time.Time, d *Decision) []check {
	spec := order.Volume.WithDefaults()
	disk := bourse.Amount{Resource: bourse.ResourceDisk, Amount: int64(spec.Disk())}
	d.Takes = bourse.Amounts{disk}
	return []check{
		func() (*bourse.Refusal, error) { return h.source(tx, &order.App, &spec, now) },
		func() (*bourse.Refusal, error) { return zone(tx, order.App, &spec) },
		func() (_ *bourse.Refusal, err error) {
			d.Committed, err = tx.CommittedAt(now)
			compute := bourse.Amounts{}
			if spec.Compute != nil { // include the resources of the machine that will use the volume
				compute = spec.Compute.Takes(h.Ledger.Shared)
			}
			return h.Fits(d.Committed, compute.Plus(disk).Sorted()), err
		},
	}
}

// source refuses a new volume whose source cannot be copied. If the source is on another worker,
// the only check is whether this worker can read other workers' volumes.
func (h *Host) source(tx *store.Tx, app *bourse.App, spec *bourse.VolumeOrder, now time.Time) (*bourse.Refusal, error) {
	id, tag := SourceOf(spec)
	no := func(format string, args ...any) (*bourse.Refusal, error) {
		return &bourse.Refusal{Reason: bourse.RefusedVolume, Resource: id, Detail: fmt.Sprintf(format, args...)}, nil
	}
	switch {
	case id == "":
		return nil, nil
	case tag != h.Tag && !h.Peers:
		return no("this worker cannot reach the worker that stores %s", id)
	case tag != h.Tag:
		return nil, nil // the other worker checks the source when this worker requests its content
	}
	source, err := LocalSource(tx, app, spec, now)
	switch {
	case bourse.CodeOf(err) == bourse.CodeNotFound:
		return no("%s", bourse.MessageOf(err))
	case err != nil:
		return nil, err
	case source.SizeGB > spec.SizeGB:
		return no("%s has %d GB, wanted %d: volumes cannot shrink", id, source.SizeGB, spec.SizeGB)
	case source.Encrypted != spec.Encrypted:
		return no("a copy must have the same encryption setting as its source: %s has encrypted=%t", id, source.Encrypted)
	}
	return nil, nil
}

// SourceOf returns the id of a new volume's source, which is a volume or a snapshot, and
// the tag of the source's worker. It returns "" for a volume that starts empty.
func SourceOf(spec *bourse.VolumeOrder) (string, bourse.WorkerTag) {
	switch {
	case spec.Snapshot != "":
		return string(spec.Snapshot), spec.Snapshot.Tag()
	case spec.Source != "":
		return string(spec.Source), spec.Source.Tag()
	}
	return "", 0
}

// LocalSource returns the size and encryption setting of a new volume's source, which must be on
// this worker. claimed is the time at which the worker received the claim for the new volume. It
// returns CodeNotFound if the source does not exist or cannot be read.
func LocalSource(tx *store.Tx, app *bourse.App, spec *bourse.VolumeOrder, claimed time.Time) (bourse.VolumeOrder, error) {
	if spec.Snapshot != "" {
		s, v, err := tx.Snapshot(spec.Snapshot)
		if err == nil && (!v.OwnedBy(app) || s.State != bourse.SnapshotCreated || s.Expired(claimed)) {
			err = bourse.Errorf(bourse.CodeNotFound, "snapshot not found")
		}
		source := v.Spec
		source.SizeGB = s.SizeGB
		return source, err
	}
	v, err := tx.Volume(spec.Source)
	if err == nil && (!v.OwnedBy(app) || !v.State.Usable()) {
		err = bourse.Errorf(bourse.CodeNotFound, "volume %s cannot be read", spec.Source)
	}
	return v.Spec, err
}

// zone refuses a volume that must be in a different zone than a volume that the app already has on
// this worker. If spec.UniqueZoneApp is set, any two volumes of the app must be in different zones.
// If only spec.UniqueZone is set, this applies to volumes with the same name. Each worker is a
// zone.
func zone(tx *store.Tx, app bourse.App, spec *bourse.VolumeOrder) (*bourse.Refusal, error) {
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
				Detail: fmt.Sprintf("the worker already has volume %s (%s) of app %s", v.ID, v.Spec.Name, app.Name),
			}, nil
		}
	}
	return nil, nil
}
