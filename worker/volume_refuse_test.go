package worker

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/bourse-dev/bourse"
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
			"encryption":       {func(o *bourse.Order) { o.Volume.Encrypted = true }, bourse.RefusedUnknown, labelEncrypted},
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
			"source out of reach": {func(o *bourse.Order) { o.Volume.Source = bourse.NewVolumeID(h.self.Tag + 1) }, bourse.RefusedVolume, ""},
		} {
			order := newVolumeOrder(t)
			c.change(order)
			q, err := h.quote(t.Context(), order)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			_, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for from, r := range map[string]*bourse.Refusal{"quote": q.Refusal, "claim": refusal} {
				if r == nil || r.Reason != c.reason || c.what != "" && r.Resource != c.what || r.Worker != "w1" || r.Region != "gru" || r.Detail == "" {
					t.Errorf("%s, %s: %+v, want %s of %q by w1 in gru, with a sentence", name, from, r, c.reason, c.what)
				}
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
	if err != nil || r == nil || r.Reason != bourse.RefusedUnknown || r.Resource != labelVolume {
		t.Errorf("claim: %+v, %v; want a refusal of what it does not know", r, err)
	}
	_, r, err = h.claim(t.Context(), &bourse.Claim{Order: *newOrder(t, mounts(bourse.NewVolumeID(h.self.Tag)))})
	if err != nil || r == nil || r.Reason != bourse.RefusedVolume {
		t.Errorf("claim of a machine with a mount: %+v, %v; want a refusal", r, err)
	}
}

// A host that cannot make the volume is a refusal, and nothing is left.
func TestAVolumeThatCannotBeMadeIsARefusal(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		reason bourse.RefusalReason
	}{
		"at once":       {bourse.Errorf(bourse.CodeInvalid, "no"), bourse.RefusedDriver},
		"disk full":     {bourse.Errorf(bourse.CodeInsufficient, "full"), bourse.RefusedUnavailable},
		"after retries": {errors.New("mkfs"), bourse.RefusedDriver},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, vols := newVolumeHost(t)
			defer h.crash()
			vols.setFault(func(call, _ string) error {
				if call == "Create" {
					return c.err
				}
				return nil
			})
			_, r, err := h.claim(t.Context(), &bourse.Claim{Order: *newVolumeOrder(t)})
			if err != nil || r == nil || r.Reason != c.reason {
				t.Errorf("%s: %+v, %v; want %s", name, r, err, c.reason)
			}
			if left, _ := vols.left(); len(left) != 0 || h.usedDisk() != 0 {
				t.Errorf("%s: the host has %v, %d MiB taken", name, left, h.usedDisk())
			}
			h.verify()
		})
	}
}

func TestExtendSaysNo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, vols := newVolumeHost(t)
		defer h.crash()
		v := h.placeVolume()
		for size, want := range map[int64]bourse.Code{9: bourse.CodeInvalid, -1: bourse.CodeInvalid, 101: bourse.CodeInsufficient, 1 << 62: bourse.CodeInvalid} {
			if _, err := h.extendVolume(t.Context(), v.ID, size); bourse.CodeOf(err) != want {
				t.Errorf("extend to %d: %v, want %s", size, err, want)
			}
		}
		vols.setFault(func(call, _ string) error {
			if call == "Extend" {
				return bourse.Errorf(bourse.CodeFailedPrecondition, "damaged")
			}
			return nil
		})
		if _, err := h.extendVolume(t.Context(), v.ID, 20); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
			t.Errorf("extend a damaged one: %v", err)
		}
		if got := h.getVolume(v.ID); got.State != bourse.VolumeCreated || got.Spec.SizeGB != 10 || h.usedDisk() != 10<<10 {
			t.Errorf("afterwards %+v, %d MiB taken; want it as it was", got, h.usedDisk())
		}
		if _, err := h.extendVolume(t.Context(), bourse.NewVolumeID(1), 20); bourse.CodeOf(err) != bourse.CodeNotFound {
			t.Errorf("extend nothing: %v", err)
		}
		h.verify()
	})
}
