package worker

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
)

func TestVolumeRefusalsSayWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newVolumeHost(t)
		defer h.crash()
		have := h.placeVolume(func(v *bourse.VolumeOrder) { v.Name = "taken" })
		gone := bourse.NewSnapshotID(h.self.Tag)
		for name, c := range map[string]struct {
			change func(*bourse.Order)
			reason bourse.RefusalReason
			what   string
		}{
			"disk":             {func(o *bourse.Order) { o.Volume.SizeGB = 91 }, bourse.RefusedResource, "disk"},
			"more than exists": {func(o *bourse.Order) { o.Volume.SizeGB = bourse.MaxVolumeGB }, bourse.RefusedResource, "disk"},
			"encryption":       {func(o *bourse.Order) { o.Volume.Encrypted = true }, bourse.RefusedUnknown, bourse.LabelEncrypted},
			"region":           {func(o *bourse.Order) { o.Regions = []bourse.Choice{{"mad"}} }, bourse.RefusedRegion, ""},
			"label":            {func(o *bourse.Order) { o.Config.Requirements = bourse.Requirements{"arch": {Label: "arm64"}} }, bourse.RefusedLabel, "arch"},
			"name in zone":     {func(o *bourse.Order) { o.Volume.Name, o.Volume.UniqueZone = "taken", true }, bourse.RefusedZone, string(have.ID)},
			"app in zone":      {func(o *bourse.Order) { o.Volume.UniqueZoneApp = true }, bourse.RefusedZone, string(have.ID)},
			"compute": {func(o *bourse.Order) {
				o.Volume.Compute = &bourse.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 5000}
			}, bourse.RefusedResource, "memory"},
			"snapshot":            {func(o *bourse.Order) { o.Volume.Snapshot = gone }, bourse.RefusedVolume, string(gone)},
			"smaller than source": {func(o *bourse.Order) { o.Volume.Source, o.Volume.SizeGB = have.ID, 9 }, bourse.RefusedVolume, string(have.ID)},
			"another app's source": {func(o *bourse.Order) {
				o.App.Name, o.Volume.Source = "other", have.ID
			}, bourse.RefusedVolume, string(have.ID)},
			"unreachable source": {func(o *bourse.Order) { o.Volume.Source = bourse.NewVolumeID(h.self.Tag + 1) }, bourse.RefusedVolume, ""},
		} {
			order := newVolumeOrder(t)
			c.change(order)
			r := h.refusalOf(order)
			if r.Reason != c.reason || c.what != "" && r.Resource != c.what || r.Worker != "w1" || r.Region != "gru" || r.Detail == "" {
				t.Errorf("%s: %+v, want reason %s and resource %q from w1 in gru, with a detail", name, r, c.reason, c.what)
			}
		}
		for name, ok := range map[string]func(*bourse.VolumeOrder){
			"another name in the zone": func(v *bourse.VolumeOrder) { v.UniqueZone = true },
			"room for the machine":     func(v *bourse.VolumeOrder) { v.Compute = &bourse.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 4000} },
		} {
			if q, err := h.quote(t.Context(), newVolumeOrder(t, ok)); err != nil || q.Refusal != nil {
				t.Errorf("%s: %+v, %v; want yes", name, q.Refusal, err)
			}
		}
		h.verify()
	})
}

func TestAWorkerWithoutVolumesRefusesThem(t *testing.T) {
	h := newHost(t, nil)
	_, r, err := h.claim(t.Context(), &bourse.Claim{Order: *newVolumeOrder(t)})
	if err != nil || r == nil || r.Reason != bourse.RefusedUnknown || r.Resource != admit.LabelVolume {
		t.Errorf("claim: %+v, %v; want a refusal with an unknown resource", r, err)
	}
	_, r, err = h.claim(t.Context(), &bourse.Claim{Order: *newOrder(t, mounts(bourse.NewVolumeID(h.self.Tag)))})
	if err != nil || r == nil || r.Reason != bourse.RefusedVolume {
		t.Errorf("claim of a machine with a mount: %+v, %v; want a refusal", r, err)
	}
}

// If a machine's volume is lost, or now belongs to another machine, the machine cannot be updated, and the other
// machine keeps the volume.
func TestAnUpdateWithoutItsVolume(t *testing.T) {
	for name, c := range map[string]struct {
		change func(tx *store.Tx, v *bourse.Volume, other bourse.MachineID) error
		want   bool // whether the update succeeds
	}{
		"lost": {func(tx *store.Tx, v *bourse.Volume, _ bourse.MachineID) error {
			for _, v.State = range []bourse.VolumeState{bourse.VolumeDestroying, bourse.VolumeDestroyed} {
				if err := tx.PutVolume(v); err != nil {
					return err
				}
			}
			return tx.DeleteVolume(v.ID)
		}, false},
		"of another machine": {func(tx *store.Tx, v *bourse.Volume, other bourse.MachineID) error {
			v.Machine = other
			return tx.PutVolume(v)
		}, false},
		"of no machine": {func(tx *store.Tx, v *bourse.Volume, _ bourse.MachineID) error {
			v.Machine = ""
			return tx.PutVolume(v)
		}, true},
		"belongs to a machine without a record": {func(tx *store.Tx, v *bourse.Volume, _ bourse.MachineID) error {
			v.Machine = bourse.NewMachineID(7)
			return tx.PutVolume(v)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := newVolumeHost(t)
				defer h.crash()
				v := h.placeVolume()
				m, other := h.place(mounts(v.ID)), h.place()
				if err := h.store.Update(t.Context(), func(tx *store.Tx) error {
					v, err := tx.Volume(v.ID)
					if err != nil {
						return err
					}
					return c.change(tx, &v, other.ID)
				}); err != nil {
					t.Fatal(err)
				}
				_, err := h.update(t.Context(), m.ID, env("A", "b"))
				if c.want {
					if got := h.getVolume(v.ID).Machine; err != nil || got != m.ID {
						t.Errorf("update: %v, the volume belongs to %q", err, got)
					}
					return
				}
				if bourse.CodeOf(err) != bourse.CodeFailedPrecondition || !strings.Contains(err.Error(), string(v.ID)) {
					t.Errorf("update: %v, want %s about volume %s", err, bourse.CodeFailedPrecondition, v.ID)
				}
				if now := h.get(m.ID); now.Instance != m.Instance || now.Next != nil || now.State != bourse.StateStarted {
					t.Errorf("the machine has version %s, state %s, next %+v", now.Instance, now.State, now.Next)
				}
				if name == "of another machine" {
					if got := h.getVolume(v.ID).Machine; got != other.ID {
						t.Errorf("the volume belongs to %q, want %q", got, other.ID)
					}
				}
			})
		})
	}
}
