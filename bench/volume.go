package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

const volumeMiB = 512 // of data that is forked

// benchVolume: a volume's fork to another worker, verified and synced, against
// cp of its image with a sync. Both read from the disk; the second fork does
// not have to describe the volume again.
func benchVolume(ctx context.Context, lab *Lab, out Figures) error {
	return inHarness(ctx, lab, func(h *harness) error {
		y, err := yardOf(h, lab, 2)
		if err != nil {
			return err
		}
		var fork, again, copied samples
		for i := range 3 {
			source, err := y.filled() // one that no one has described yet
			if err != nil {
				return err
			}
			images, err := filepath.Glob(filepath.Join(lab.dir, "*", "volumes", string(source), "image"))
			if err != nil || len(images) != 1 {
				return fmt.Errorf("the image of %s: %v, %w", source, images, err)
			}
			if err := uncached(images[0]); err != nil {
				return err
			}
			copyTo := filepath.Join(lab.dir, fmt.Sprintf("copy-%d", i))
			if err := copied.measure(func() error { return copyFile(ctx, images[0], copyTo) }); err != nil {
				return err
			}
			if err := uncached(images[0]); err != nil {
				return err
			}
			for _, into := range []*samples{&fork, &again} {
				var id bourse.VolumeID
				if err := into.measure(func() (err error) { id, err = y.fork(source); return }); err != nil {
					return err
				}
				if _, err := y.client.Volumes(app).Destroy(ctx, id); err != nil {
					return err
				}
			}
			if _, err := y.client.Volumes(app).Destroy(ctx, source); err != nil {
				return err
			}
		}
		out["volume_fork_mib_s"] = volumeMiB / fork.quantile(0.5).Seconds()
		out["floor_cp_mib_s"] = volumeMiB / copied.quantile(0.5).Seconds()
		out["volume_fork_again_mib_s"] = volumeMiB / again.quantile(0.5).Seconds()
		out["volume_fork_again_ratio"] = out["volume_fork_again_mib_s"] / out["floor_cp_mib_s"]
		out["volume_fork_ratio"] = out["volume_fork_mib_s"] / out["floor_cp_mib_s"]
		return nil
	})
}

// filled returns a volume with data that nothing makes smaller, written by a
// machine that has gone.
func (y *yard) filled() (bourse.VolumeID, error) {
	size := int64(1)
	v, err := y.client.Volumes(app).Create(y.ctx, machinesapi.CreateVolume{Name: "data", Region: "gru", SizeGB: &size}, "")
	if err != nil {
		return "", err
	}
	req := contained(y.small.Ref())
	req.Config.Init = bourse.Init{Cmd: []string{"/bin/sh", "-c", fmt.Sprintf("dd if=/dev/urandom of=/data/x bs=1M count=%d && sync && exec sleep 1000", volumeMiB)}}
	req.Config.Mounts = []bourse.Mount{{Volume: v.ID, Path: "/data"}}
	m, err := y.client.Create(y.ctx, app, req, "")
	if err != nil {
		return "", err
	}
	err = until(y.ctx, time.Minute, "the data is written", func() bool {
		r, err := y.client.Exec(y.ctx, app, m.ID, machinesapi.ExecMachine{Command: []string{"/bin/sh", "-c", "pidof dd || echo done"}})
		return err == nil && bytes.Contains([]byte(r.Stdout), []byte("done"))
	})
	if err != nil {
		return "", err
	}
	return v.ID, y.destroy(m.ID)
}

// fork copies a volume to the other worker and returns when the copy is whole.
func (y *yard) fork(source bourse.VolumeID) (bourse.VolumeID, error) {
	v, err := y.client.Volumes(app).Create(y.ctx, machinesapi.CreateVolume{Name: "data", Region: "gru", Source: source}, "")
	if err != nil {
		return "", err
	}
	return v.ID, until(y.ctx, time.Minute, "the copy is whole", func() bool {
		now, err := y.client.Volumes(app).Get(y.ctx, v.ID)
		return err == nil && now.State == bourse.VolumeCreated
	})
}
