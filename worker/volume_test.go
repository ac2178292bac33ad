package worker

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/worker/publish"
	"github.com/bourse-dev/bourse/worker/volumes/volumetest"
)

// withVolumes gives a worker the in-memory volumes vols and 100 GB of disk.
func withVolumes(vols *volumetest.Host) func(*Config) {
	return func(c *Config) { c.Volumes, c.Capacity.Disk = vols, 100<<10 }
}

// newVolumeHost returns a host with in-memory volumes and a started worker.
func newVolumeHost(t testing.TB) (*host, *volumetest.Host) {
	t.Helper()
	vols := volumetest.NewHost()
	return newHost(t, withVolumes(vols)), vols
}

func newVolumeOrder(t testing.TB, change ...func(*bourse.VolumeOrder)) *bourse.Order {
	t.Helper()
	o := &bourse.Order{
		ID:      bourse.NewOrderID(),
		App:     bourse.App{Name: "web", ID: "01", Org: "personal", CreatedAt: time.Unix(1, 0).UTC()},
		Regions: []bourse.Choice{{"gru"}},
		Volume:  &bourse.VolumeOrder{Name: "data", SizeGB: 10},
	}
	for _, f := range change {
		f(o.Volume)
	}
	*o.Volume = o.Volume.WithDefaults()
	if err := o.Validate(); err != nil {
		t.Fatalf("order: %v", err)
	}
	return o
}

// placeVolume claims an order for a volume and fails the test unless it is
// filled.
func (h *host) placeVolume(change ...func(*bourse.VolumeOrder)) bourse.Volume {
	h.t.Helper()
	fill, refusal, err := h.claim(h.t.Context(), &bourse.Claim{Order: *newVolumeOrder(h.t, change...)})
	if err != nil || refusal != nil || fill.Volume == nil {
		h.t.Fatalf("claim: %+v, refusal %+v, error %v", fill, refusal, err)
	}
	return *fill.Volume
}

// mounts makes an order's machine mount a volume.
func mounts(id bourse.VolumeID) func(*bourse.Order) {
	return func(o *bourse.Order) { o.Config.Mounts = []bourse.Mount{{Volume: id, Path: "/data"}} }
}

func (h *host) getVolume(id bourse.VolumeID) bourse.Volume {
	h.t.Helper()
	v, err := h.volumes.Record(h.t.Context(), id)
	if err != nil {
		h.t.Fatalf("volume %s: %v", id, err)
	}
	return v
}

// volumeReaches waits until a volume is in a state.
func (h *host) volumeReaches(id bourse.VolumeID, want bourse.VolumeState) bourse.Volume {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Hour)
	defer cancel()
	v, err := h.volumes.Await(ctx, id, func(v *bourse.Volume) bool { return v.State == want })
	if err != nil {
		h.t.Fatalf("volume %s is %s (%s) and never became %s: %v", id, v.State, v.Error, want, err)
	}
	return v
}

// usedDisk returns the committed part of the worker's disk.
func (h *host) usedDisk() bourse.MiB {
	h.t.Helper()
	if err := h.store.Sync(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	free, err := h.Free()
	if err != nil {
		h.t.Fatal(err)
	}
	return bourse.MiB(h.host.Ledger.Totals.Of(bourse.ResourceDisk) - free.Of(bourse.ResourceDisk))
}

// A volume is created, mounted by a machine, extended while it is in use, snapshotted, and outlives the machine. The
// ledger always contains its disk space.
func TestLifeOfAVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, vols := newVolumeHost(t)
		defer h.crash()
		ctx := t.Context()
		order := newVolumeOrder(t)
		q, err := h.quote(ctx, order)
		if err != nil || q.Refusal != nil || q.Takes.Of(bourse.ResourceDisk) != 10<<10 {
			t.Fatalf("quote: %+v, %v; want yes for 10 GB", q, err)
		}
		v := h.placeVolume()
		if v.State != bourse.VolumeCreated || v.Spec.Name != "data" || v.ID.Tag() != h.self.Tag || h.usedDisk() != 10<<10 {
			t.Fatalf("created %+v, %d MiB taken; want a volume on this worker and 10 GB", v, h.usedDisk())
		}
		m := h.place(mounts(v.ID))
		if got := m.Config.Mounts[0]; got.Name != "data" || got.SizeGB != 10 {
			t.Errorf("the machine's mount is %+v, want its name and size filled in", got)
		}
		if v = h.getVolume(v.ID); v.Machine != m.ID {
			t.Errorf("the volume belongs to %q, want machine %s", v.Machine, m.ID)
		}
		if mem, _ := vols.Read(v.ID); !mem.Mounted {
			t.Error("the machine runs, but its volume is not mounted")
		}
		if v, err = h.volumes.Extend(ctx, v.ID, 20); err != nil || v.Spec.SizeGB != 20 || v.State != bourse.VolumeCreated || v.Usage == nil || h.usedDisk() != 20<<10 {
			t.Errorf("extended: %+v, %v, %d MiB taken; want 20 GB and its usage", v, err, h.usedDisk())
		}
		if got := h.get(m.ID).Config.Mounts[0].SizeGB; got != 20 {
			t.Errorf("the machine's mount has %d GB, want 20", got)
		}
		vols.Write(v.ID, strings.Repeat("x", 1024)) // uses 4 MiB of disk
		s, err := h.volumes.Snapshot(ctx, v.ID)
		if err != nil || s.State != bourse.SnapshotCreated || s.Bytes != 4<<20 || s.SizeGB != 20 || s.RetentionDays != bourse.DefaultRetentionDays || s.Digest == "" {
			t.Errorf("snapshot %+v, %v; want one of 4 MiB", s, err)
		}
		if got := h.usedDisk(); got != 20<<10+4 {
			t.Errorf("%d MiB taken, want the volume's and 4", got)
		}
		if _, err := h.volumes.Destroy(ctx, v.ID); bourse.CodeOf(err) != bourse.CodeFailedPrecondition || !strings.Contains(err.Error(), "currently bound to machine: "+string(m.ID)) {
			t.Errorf("destroy while attached: %v, want failed_precondition", err)
		}
		h.must(h.machines.Destroy(ctx, m.ID, fabric.MachineAction{Force: true}))
		if mem, ok := vols.Read(v.ID); !ok || mem.Mounted || len(mem.Data) != 1024 {
			t.Errorf("after the machine's destruction, the host has %+v (%t), want the data, unmounted", mem.Mounted, ok)
		}
		if v = h.getVolume(v.ID); v.Machine != "" {
			t.Errorf("the volume still belongs to %s, which was destroyed", v.Machine)
		}
		if v, err = h.volumes.Destroy(ctx, v.ID); err != nil || v.State != bourse.VolumeDestroyed || len(v.Snapshots) != 1 {
			t.Errorf("destroyed: %+v, %v; want its snapshot listed", v, err)
		}
		if got := h.usedDisk(); got != 4 {
			t.Errorf("%d MiB taken, want the snapshot's", got)
		}
		if _, err := h.volumes.Destroy(ctx, v.ID); bourse.CodeOf(err) != bourse.CodeNotFound {
			t.Errorf("destroy again: %v, want not_found", err)
		}
		h.verify()
	})
}

// The view contains the store's volumes, even after the view was lost.
func TestVolumesArePublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view, vols := newMemView(), volumetest.NewHost()
		h := newHost(t, func(c *Config) { withVolumes(vols)(c); c.View = view })
		defer func() { h.crash() }()
		check := func(when string) {
			t.Helper()
			time.Sleep(2 * time.Second)
			all, err := h.volumes.List(t.Context(), nil, func(v *bourse.Volume) bool { return v.State != bourse.VolumeDestroyed })
			if err != nil {
				t.Fatal(err)
			}
			want := map[bourse.VolumeID]bourse.Volume{}
			for _, v := range all {
				want[v.ID] = v
			}
			view.has(func() {
				if diff := cmp.Diff(want, view.volumes); diff != "" {
					t.Errorf("%s (-store +view):\n%s", when, diff)
				}
			})
		}
		a, b := h.placeVolume(), h.placeVolume()
		check("created")
		m := h.place(mounts(a.ID))
		check("attached")
		if _, err := h.volumes.Extend(t.Context(), a.ID, 12); err != nil {
			t.Fatal(err)
		}
		check("extended")
		if _, err := h.volumes.Snapshot(t.Context(), a.ID); err != nil {
			t.Fatal(err)
		}
		check("kept")
		view.lose()
		check("lost")
		h.must(h.machines.Destroy(t.Context(), m.ID, fabric.MachineAction{Force: true}))
		check("detached")
		h.crash()
		if err := h.tryStart(nil); err != nil {
			t.Fatal(err)
		}
		if _, err := h.volumes.Destroy(t.Context(), b.ID); err != nil {
			t.Fatal(err)
		}
		check("destroyed")
		stray := bourse.NewVolumeID(1)
		view.has(func() { view.volumes[stray] = bourse.Volume{ID: stray} })
		time.Sleep(publish.CheckInterval)
		check("an unknown volume in the view")
	})
}
