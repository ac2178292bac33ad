package broker_test

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/codec"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/inventory"
)

// addVolume creates a volume, as a claim of a volume order does.
func (w *worker) addVolume(order bourse.Order) bourse.Volume {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now().UTC()
	v := &bourse.Volume{
		ID: bourse.NewVolumeID(w.self.Tag), App: order.App.Name, AppID: order.App.ID, Worker: w.self.ID, Region: w.self.Region, Order: order.ID,
		State: bourse.VolumeCreated, Spec: *order.Volume, CreatedAt: now, UpdatedAt: now,
	}
	if v.Spec.Source != "" || v.Spec.Snapshot != "" {
		v.State = bourse.VolumeHydrating
	}
	w.volumes[v.ID] = v
	return *v
}

func (w *worker) findVolume(id bourse.VolumeID) (*bourse.Volume, error) {
	v, ok := w.volumes[id]
	if !ok {
		return nil, bourse.Errorf(bourse.CodeNotFound, "no such volume")
	}
	return v, nil
}

func (w *worker) handleVolumes() {
	handle(w, &fabric.VolumeList, func(q fabric.VolumesQuery) ([]bourse.Volume, error) {
		var out []bourse.Volume
		for _, v := range w.volumes {
			if (q.App == "" || q.App == v.App) && (q.Deleted || v.State != bourse.VolumeDestroyed) {
				out = append(out, *v)
			}
		}
		return out, nil
	})
	handle(w, &fabric.VolumeShow, func(id bourse.VolumeID) (bourse.Volume, error) {
		v, err := w.findVolume(id)
		if err != nil {
			return bourse.Volume{}, err
		}
		return used(v), nil
	})
	handle(w, &fabric.VolumeUpdate, func(change fabric.VolumeChange) (bourse.Volume, error) {
		return w.changeVolume(change.Volume, func(v *bourse.Volume) error {
			if change.RetentionDays != nil {
				v.Spec.RetentionDays = *change.RetentionDays
			}
			if change.ScheduledSnaps != nil {
				v.Spec.ScheduledSnaps = *change.ScheduledSnaps
			}
			return nil
		})
	})
	handle(w, &fabric.VolumeExtend, func(e fabric.ExtendRequest) (bourse.Volume, error) {
		return w.changeVolume(e.Volume, func(v *bourse.Volume) error {
			switch {
			case e.SizeGB < v.Spec.SizeGB:
				return bourse.Errorf(bourse.CodeInvalid, "a volume never shrinks")
			case w.full:
				return bourse.Errorf(bourse.CodeInsufficient, "disk: 0 GB free")
			}
			v.Spec.SizeGB = e.SizeGB
			return nil
		})
	})
	handle(w, &fabric.VolumeDestroy, func(id bourse.VolumeID) (bourse.Volume, error) {
		return w.changeVolume(id, func(v *bourse.Volume) error {
			if v.Machine != "" {
				return bourse.Errorf(bourse.CodeFailedPrecondition, "volume is currently bound to machine: %s", v.Machine)
			}
			v.State = bourse.VolumeDestroyed
			return nil
		})
	})
	handle(w, &fabric.VolumeSnapshot, w.snapshot)
}

// changeVolume applies do to a volume and gives the volume a new version.
func (w *worker) changeVolume(id bourse.VolumeID, do func(*bourse.Volume) error) (bourse.Volume, error) {
	v, err := w.findVolume(id)
	if err == nil {
		err = do(v)
	}
	if err != nil {
		return bourse.Volume{}, err
	}
	v.UpdatedAt = v.UpdatedAt.Add(time.Millisecond)
	return used(v), nil
}

// used returns a volume with its used space set.
func used(v *bourse.Volume) bourse.Volume {
	out := *v
	out.Usage = &bourse.VolumeUsage{BlockSize: 4096, Blocks: 1000, BlocksFree: 600, BlocksAvail: 500}
	return out
}

func (w *worker) snapshot(id bourse.VolumeID) (s bourse.Snapshot, err error) {
	_, err = w.changeVolume(id, func(v *bourse.Volume) error {
		if v.State == bourse.VolumeDestroyed {
			return bourse.Errorf(bourse.CodeFailedPrecondition, "it is gone")
		}
		s = bourse.Snapshot{
			ID: bourse.NewSnapshotID(w.self.Tag), Volume: id, State: bourse.SnapshotCreated, Bytes: 1 << 20, SizeGB: v.Spec.SizeGB,
			Digest: "sha256:ab", RetentionDays: v.Spec.RetentionDays, CreatedAt: time.Now(),
		}
		v.Snapshots = append(v.Snapshots, s)
		return nil
	})
	return s, err
}

// bind attaches a volume to machine m.
func (s *setup) bind(id bourse.VolumeID, m bourse.MachineID) {
	for _, w := range s.workers {
		w.mu.Lock()
		if v, ok := w.volumes[id]; ok {
			v.Machine, v.UpdatedAt = m, v.UpdatedAt.Add(time.Millisecond)
		}
		w.mu.Unlock()
	}
}

// volume creates a volume of app "shop" on worker w.
func (s *setup) volume(w bourse.WorkerID) bourse.Volume {
	return s.workers[w].addVolume(bourse.Order{
		ID: bourse.NewOrderID(), App: bourse.App{Name: "shop"},
		Volume: &bourse.VolumeOrder{Name: "data", SizeGB: 3, FSType: "ext4", RetentionDays: 5},
	})
}

func (v *fakeView) Volumes(_ context.Context, f inventory.VolumeFilter) ([]inventory.ListedVolume, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.read(); err != nil {
		return nil, err
	}
	var out []inventory.ListedVolume
	for _, l := range v.volumes {
		if f.App == "" || l.App == f.App {
			l.HostStatus, l.HeardAt = machinesapi.HostOK, v.heard
			if s, ok := v.status[l.Worker]; ok {
				l.HostStatus = s
			}
			out = append(out, l)
		}
	}
	return out, nil
}

func (w *worker) handleImages() {
	handle(w, &fabric.ImageList, func(struct{}) ([]bourse.Image, error) { return slices.Clone(w.images), nil })
	handle(w, &fabric.ImageResolve, func(req fabric.ResolveRequest) (bourse.ImageRef, error) {
		ref := bourse.ParseImageRef(req.Image)
		if ref.Repository == "library/missing" {
			return ref, bourse.Errorf(bourse.CodeNotFound, "no such image")
		}
		ref.Digest = "sha256:" + req.Org
		return ref, nil
	})
	handle(w, &fabric.ImagePrune, func(struct{}) ([]bourse.Image, error) {
		gone := w.images
		w.images = nil
		return gone, nil
	})
	fabric.ImagePull.Handle(&w.mux, func(_ context.Context, req fabric.PullRequest, out *codec.Writer) error {
		if strings.HasPrefix(req.Image, "missing") {
			return bourse.Errorf(bourse.CodeNotFound, "no such image")
		}
		got := bourse.Image{Ref: bourse.ParseImageRef(req.Image), Bytes: 300}
		got.Ref.Digest = "sha256:ab"
		w.mu.Lock()
		w.images = append(w.images, got)
		w.mu.Unlock()
		for n := range int64(3) {
			under := got
			under.Pull = &bourse.PullProgress{Status: "pulling", Bytes: n * 100, Total: 300}
			if err := out.Write(under); err != nil {
				return err
			}
		}
		return out.Write(got)
	})
}
