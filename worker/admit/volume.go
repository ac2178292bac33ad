package admit

import (
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// Volume returns why the worker does not fill an order for a volume now, nil if
// it would.
func (h *Host) Volume(tx *store.Tx, order *bourse.Order, now time.Time) (*bourse.Refusal, error) {
	spec := order.Volume.WithDefaults()
	return h.first(
		func() (*bourse.Refusal, error) { return h.volumeEver(order, &spec), nil },
		func() (*bourse.Refusal, error) { return h.Tries.refuse(order), nil },
		func() (*bourse.Refusal, error) { return canceled(tx, order) },
		func() (*bourse.Refusal, error) { return cordoned(tx) },
		func() (*bourse.Refusal, error) { return h.source(tx, order.App.Owns, &spec, now) },
		func() (*bourse.Refusal, error) { return zone(tx, order.App, &spec) },
		func() (*bourse.Refusal, error) { return h.disk(tx, &spec, now) },
	)
}

// volumeEver returns the reasons that no other volume's end would remove.
func (h *Host) volumeEver(order *bourse.Order, spec *bourse.VolumeOrder) *bourse.Refusal {
	if r := h.region(order); r != nil {
		return r
	}
	if h.VolumeLabels[LabelVolume] == "" {
		return &bourse.Refusal{Reason: bourse.RefusedUnknown, Resource: LabelVolume, Detail: "the worker has no volumes"}
	}
	if spec.Encrypted && h.VolumeLabels[bourse.LabelEncrypted] == "" {
		return &bourse.Refusal{Reason: bourse.RefusedUnknown, Resource: bourse.LabelEncrypted, Detail: "the worker cannot encrypt volumes"}
	}
	if order.Config.Image != "" { // of the machine that is to mount it, here
		if r := h.runs(order); r != nil {
			return r
		}
	}
	return h.labels(order.Config.Requirements, h.Labels.Load().All)
}

// canceled refuses an order that was canceled, or whose id is another order's.
func canceled(tx *store.Tx, order *bourse.Order) (*bourse.Refusal, error) {
	rec, ok, err := tx.Order(order.ID)
	if err != nil || !ok || !rec.Canceled && !rec.Held && rec.Task == nil && !state.Foreign(&rec, &order.App) {
		return nil, err
	}
	return &bourse.Refusal{Reason: bourse.RefusedCanceled, Detail: "the order was canceled"}, nil
}

// source judges what the volume is to be filled from, as far as this
// worker knows it.
func (h *Host) source(tx *store.Tx, mine state.Ownership, spec *bourse.VolumeOrder, now time.Time) (*bourse.Refusal, error) {
	id, tag := SourceOf(spec)
	no := func(format string, args ...any) (*bourse.Refusal, error) {
		return &bourse.Refusal{Reason: bourse.RefusedVolume, Resource: id, Detail: fmt.Sprintf(format, args...)}, nil
	}
	switch {
	case id == "":
		return nil, nil
	case tag != h.Tag && !h.Peers:
		return no("the worker cannot reach the one that has %s", id)
	case tag != h.Tag:
		return nil, nil // its worker says so when it is asked for the content
	}
	have, err := LocalSource(tx, mine, spec, now)
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

// SourceOf returns the id of what a volume is to be filled from, and the tag of
// the worker that has it; "" for a new one.
func SourceOf(spec *bourse.VolumeOrder) (string, bourse.WorkerTag) {
	switch {
	case spec.Snapshot != "":
		return string(spec.Snapshot), spec.Snapshot.Tag()
	case spec.Source != "":
		return string(spec.Source), spec.Source.Tag()
	}
	return "", 0
}

// LocalSource returns what a source is that this worker has, and had when it was
// claimed. CodeNotFound: there is none that can be read.
func LocalSource(tx *store.Tx, mine state.Ownership, spec *bourse.VolumeOrder, claimed time.Time) (bourse.VolumeOrder, error) {
	if spec.Snapshot != "" {
		s, v, err := tx.Snapshot(spec.Snapshot)
		if err == nil && (!mine(v.App, v.AppID, v.CreatedAt) || s.State != bourse.SnapshotCreated || s.Expired(claimed)) {
			err = bourse.Errorf(bourse.CodeNotFound, "snapshot not found")
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

// zone keeps volumes apart that are to be: a worker is a zone.
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
				Detail: fmt.Sprintf("the worker has volume %s (%s) of app %s", v.ID, v.Spec.Name, app.Name),
			}, nil
		}
	}
	return nil, nil
}

// disk asks the ledger for the volume's disk, and whether the machine
// that is to use it would fit beside it.
func (h *Host) disk(tx *store.Tx, spec *bourse.VolumeOrder, now time.Time) (*bourse.Refusal, error) {
	committed, err := tx.CommittedAt(now)
	if err != nil {
		return nil, err
	}
	wants := bourse.Amounts{}
	if spec.Compute != nil {
		wants = spec.Compute.Takes(h.Ledger.Shared)
	}
	wants = wants.Plus(bourse.Amount{Resource: bourse.ResourceDisk, Amount: int64(spec.Disk())})
	return h.Fits(committed, wants.Sorted()), nil
}

// Mountable finds the volume that a machine of an app is to mount, or the
// reason why it cannot: exactly one machine has a volume.
func (h *Host) Mountable(tx *store.Tx, id bourse.VolumeID, mine state.Ownership, machine bourse.MachineID) (bourse.Volume, *bourse.Refusal, error) {
	no := func(format string, args ...any) *bourse.Refusal {
		return &bourse.Refusal{
			Worker: h.Worker, Region: h.Region, Reason: bourse.RefusedVolume, Resource: string(id), Detail: fmt.Sprintf(format, args...),
		}
	}
	v, err := tx.Volume(id)
	switch {
	case bourse.CodeOf(err) == bourse.CodeNotFound, err == nil && (!mine(v.App, v.AppID, v.CreatedAt) || v.State == bourse.VolumeDestroyed):
		return v, no("the app has no volume %s here", bourse.Quoted(string(id))), nil
	case err != nil:
		return v, nil, err
	case !v.State.Usable():
		return v, no("volume %s is %s", id, v.State), nil
	}
	holder, err := HolderOf(tx, &v)
	if err == nil && holder != "" && holder != machine {
		return v, no("volume %s already claimed by machine %s", id, holder), nil
	}
	return v, nil, err
}

// HolderOf returns the living machine that has a volume, "" when none does.
func HolderOf(tx *store.Tx, v *bourse.Volume) (bourse.MachineID, error) {
	if v.Machine == "" {
		return "", nil
	}
	m, err := tx.Machine(v.Machine)
	switch {
	case bourse.CodeOf(err) == bourse.CodeNotFound:
		return "", nil
	case err != nil || m.State == bourse.StateDestroyed:
		return "", err
	}
	return m.ID, nil
}
