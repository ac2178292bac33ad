package broker_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// addVolume makes a volume as a claim does.
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

func (c *cluster) Volumes(ctx context.Context, to bourse.Member, q fabric.VolumesQuery) ([]bourse.Volume, error) {
	return on(ctx, c, to, "volumes", func(w *worker) ([]bourse.Volume, error) {
		var out []bourse.Volume
		for _, v := range w.volumes {
			if (q.App == "" || q.App == v.App) && (q.Deleted || v.State != bourse.VolumeDestroyed) {
				out = append(out, *v)
			}
		}
		return out, nil
	})
}

func (c *cluster) Volume(ctx context.Context, to bourse.Member, id bourse.VolumeID) (bourse.Volume, error) {
	return c.onVolume(ctx, to, id, "volume", func(*worker, *bourse.Volume) error { return nil })
}

// onVolume makes a call about one volume, which tells how full it is.
func (c *cluster) onVolume(ctx context.Context, to bourse.Member, id bourse.VolumeID, name string, do func(*worker, *bourse.Volume) error) (bourse.Volume, error) {
	return on(ctx, c, to, name, func(w *worker) (bourse.Volume, error) {
		v, err := w.findVolume(id)
		if err == nil {
			err = do(w, v)
		}
		if err != nil {
			return bourse.Volume{}, err
		}
		if name != "volume" {
			v.UpdatedAt = v.UpdatedAt.Add(time.Millisecond)
		}
		out := *v
		out.Usage = &bourse.VolumeUsage{BlockSize: 4096, Blocks: 1000, BlocksFree: 600, BlocksAvail: 500}
		return out, nil
	})
}

func (c *cluster) VolumeChange(ctx context.Context, to bourse.Member, id bourse.VolumeID, change fabric.VolumeChange) (bourse.Volume, error) {
	return c.onVolume(ctx, to, id, "volume change", func(_ *worker, v *bourse.Volume) error {
		if change.RetentionDays != nil {
			v.Spec.RetentionDays = *change.RetentionDays
		}
		if change.ScheduledSnaps != nil {
			v.Spec.ScheduledSnaps = *change.ScheduledSnaps
		}
		return nil
	})
}

func (c *cluster) VolumeExtend(ctx context.Context, to bourse.Member, id bourse.VolumeID, sizeGB int64) (bourse.Volume, error) {
	return c.onVolume(ctx, to, id, "volume extend", func(w *worker, v *bourse.Volume) error {
		switch {
		case sizeGB < v.Spec.SizeGB:
			return bourse.Errorf(bourse.CodeInvalid, "a volume never shrinks")
		case w.full:
			return bourse.Errorf(bourse.CodeInsufficient, "disk: 0 GB free")
		}
		v.Spec.SizeGB = sizeGB
		return nil
	})
}

func (c *cluster) VolumeDestroy(ctx context.Context, to bourse.Member, id bourse.VolumeID) (bourse.Volume, error) {
	return c.onVolume(ctx, to, id, "volume destroy", func(_ *worker, v *bourse.Volume) error {
		if v.Machine != "" {
			return bourse.Errorf(bourse.CodeFailedPrecondition, "volume is currently bound to machine: %s", v.Machine)
		}
		v.State = bourse.VolumeDestroyed
		return nil
	})
}

func (c *cluster) Snapshot(ctx context.Context, to bourse.Member, id bourse.VolumeID) (bourse.Snapshot, error) {
	var s bourse.Snapshot
	_, err := c.onVolume(ctx, to, id, "snapshot", func(w *worker, v *bourse.Volume) error {
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

// bind attaches a volume to a machine.
func (s *setup) bind(id bourse.VolumeID, m bourse.MachineID) {
	for _, w := range s.workers {
		w.mu.Lock()
		if v, ok := w.volumes[id]; ok {
			v.Machine, v.UpdatedAt = m, v.UpdatedAt.Add(time.Millisecond)
		}
		w.mu.Unlock()
	}
}

// volume makes a volume of app "shop" on worker w.
func (s *setup) volume(w bourse.WorkerID) bourse.Volume {
	return s.workers[w].addVolume(bourse.Order{
		ID: bourse.NewOrderID(), App: bourse.App{Name: "shop"},
		Volume: &bourse.VolumeOrder{Name: "data", SizeGB: 3, FSType: "ext4", RetentionDays: 5},
	})
}

func (v *fakeView) Volumes(_ context.Context, app bourse.AppName) ([]broker.ListedVolume, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.read(); err != nil {
		return nil, err
	}
	var out []broker.ListedVolume
	for _, l := range v.volumes {
		if app == "" || l.App == app {
			l.HostStatus, l.HeardAt = machinesapi.HostOK, v.heard
			if s, ok := v.status[l.Worker]; ok {
				l.HostStatus = s
			}
			out = append(out, l)
		}
	}
	return out, nil
}

func (c *cluster) Images(ctx context.Context, to bourse.Member) ([]bourse.Image, error) {
	return on(ctx, c, to, "images", func(w *worker) ([]bourse.Image, error) { return slices.Clone(w.images), nil })
}

func (c *cluster) ImagePull(ctx context.Context, to bourse.Member, image string, progress func(bourse.Image) error) (bourse.Image, error) {
	got, err := on(ctx, c, to, "image pull", func(w *worker) (bourse.Image, error) {
		if strings.HasPrefix(image, "missing") {
			return bourse.Image{}, bourse.Errorf(bourse.CodeNotFound, "no such image")
		}
		i := bourse.Image{Ref: bourse.ParseImageRef(image), Bytes: 300}
		i.Ref.Digest = "sha256:ab"
		w.images = append(w.images, i)
		return i, nil
	})
	if err != nil {
		return got, err
	}
	for n := range int64(3) {
		under := got
		under.Pull = &bourse.PullProgress{Status: "pulling", Bytes: n * 100, Total: 300}
		if err := progress(under); err != nil {
			return got, err
		}
	}
	return got, nil
}

func (c *cluster) ImagePrune(ctx context.Context, to bourse.Member) ([]bourse.Image, error) {
	return on(ctx, c, to, "image prune", func(w *worker) ([]bourse.Image, error) {
		gone := w.images
		w.images = nil
		return gone, nil
	})
}

func (c *cluster) Usage(ctx context.Context, to bourse.Member, id bourse.MachineID) (fabric.Usage, error) {
	return on(ctx, c, to, "usage", func(w *worker) (fabric.Usage, error) {
		if _, err := w.find(id); err != nil {
			return fabric.Usage{}, err
		}
		return fabric.Usage{At: time.Unix(7, 0), CPU: 1500 * time.Millisecond, Throttled: -1, Memory: 1 << 20, PIDs: 3, CPUs: 0.5, MayCPUs: 2, ReadByte: -1}, nil
	})
}

// PassExec and PassTunnel are for tests that have a network; see wired.
func (c *cluster) PassExec(context.Context, bourse.Member, bourse.MachineID, io.ReadCloser) (io.ReadCloser, error) {
	return nil, errDown
}

func (c *cluster) PassTunnel(context.Context, bourse.Member, bourse.MachineID, uint16, io.ReadCloser) (io.ReadCloser, error) {
	return nil, errDown
}
