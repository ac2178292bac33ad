package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/store"
)

// refuseVolumes gives the reason why an order's machine cannot have the volume
// that it mounts, nil if there is none. It changes nothing.
func (w *Worker) refuseVolumes(tx *store.Tx, order *bourse.Order) (*bourse.Refusal, error) {
	for _, mount := range order.Config.Mounts {
		if _, r, err := w.mountable(tx, mount.Volume, order.App.Owns, ""); r != nil || err != nil {
			return r, err
		}
	}
	return nil, nil
}

// mountable finds the volume that a machine of an app is to mount, or the
// reason why it cannot: exactly one machine has a volume.
func (w *Worker) mountable(tx *store.Tx, id bourse.VolumeID, mine ownership, machine bourse.MachineID) (bourse.Volume, *bourse.Refusal, error) {
	no := func(format string, args ...any) *bourse.Refusal {
		return &bourse.Refusal{
			Worker: w.self.Worker, Region: w.self.Region, Reason: bourse.RefusedVolume, Resource: string(id), Detail: fmt.Sprintf(format, args...),
		}
	}
	v, err := tx.Volume(id)
	switch {
	case bourse.CodeOf(err) == bourse.CodeNotFound, err == nil && (!mine(v.App, v.AppID, v.CreatedAt) || !living(&v)):
		return v, no("the app has no volume %s here", bourse.Quoted(string(id))), nil
	case err != nil:
		return v, nil, err
	case !v.State.Usable():
		return v, no("volume %s is %s", id, v.State), nil
	}
	holder, err := holderOf(tx, &v)
	if err == nil && holder != "" && holder != machine {
		return v, no("volume %s already claimed by machine %s", id, holder), nil
	}
	return v, nil, err
}

// holderOf gives the living machine that has a volume, "" when none does.
func holderOf(tx *store.Tx, v *bourse.Volume) (bourse.MachineID, error) {
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

// attachVolumes gives m its volumes, in the transaction that records m, and
// fills in what m's mounts say of them. A refusal undoes the transaction.
func (w *Worker) attachVolumes(tx *store.Tx, m *bourse.Machine) (*bourse.Refusal, error) {
	for i := range m.Config.Mounts {
		mount := &m.Config.Mounts[i]
		v, r, err := w.mountable(tx, mount.Volume, ownerOf(m.App, m.AppID), m.ID)
		if r != nil || err != nil {
			return r, err
		}
		mount.Name, mount.SizeGB, mount.Encrypted = v.Spec.Name, v.Spec.SizeGB, v.Spec.Encrypted
		if v.Machine == m.ID {
			continue
		}
		if _, err := changeVolume(tx, v.ID, "attach", func(v *bourse.Volume) (bool, error) { v.Machine = m.ID; return true, nil }); err != nil {
			return nil, err
		}
		w.noteVolume(v.ID, true)
	}
	return nil, nil
}

// detachVolumes takes m's volumes from it, in the transaction that records it
// as destroyed. It is idempotent.
func (w *Worker) detachVolumes(tx *store.Tx, m *bourse.Machine) error {
	for _, mount := range m.Config.Mounts {
		_, err := changeVolume(tx, mount.Volume, "detach", func(v *bourse.Volume) (bool, error) {
			if v.Machine != m.ID {
				return false, nil
			}
			v.Machine = ""
			w.noteVolume(v.ID, true)
			return true, nil
		})
		if err != nil && bourse.CodeOf(err) != bourse.CodeNotFound {
			return err
		}
	}
	return nil
}

// mountVolumes mounts m's volumes on the host before m starts, and says where
// they go in it. It is idempotent.
func (w *Worker) mountVolumes(ctx context.Context, m *bourse.Machine) ([]driver.Mount, error) {
	var out []driver.Mount
	for _, mount := range m.Config.Mounts {
		v, err := w.volumeNow(mount.Volume)
		if err != nil {
			return nil, err
		}
		if v.Machine != m.ID || !v.State.Usable() { // a record of ours says that it is: never let two write to one
			return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "volume %s is %s and belongs to machine %q", v.ID, v.State, v.Machine)
		}
		path, err := w.volumes.host.Mount(ctx, v.ID)
		if err != nil {
			return nil, fmt.Errorf("mount volume %s: %w", v.ID, err)
		}
		out = append(out, driver.Mount{Source: path, Target: mount.Path})
	}
	return out, nil
}

// unmountVolumes undoes mountVolumes once nothing of m runs. It is idempotent.
func (w *Worker) unmountVolumes(ctx context.Context, m *bourse.Machine) error {
	var errs []error
	for _, mount := range m.Config.Mounts {
		v, err := w.volumeNow(mount.Volume)
		if bourse.CodeOf(err) == bourse.CodeNotFound || err == nil && v.Machine != m.ID { // another's by now
			continue
		}
		if err == nil {
			err = w.volumes.host.Unmount(ctx, v.ID)
		}
		if err != nil && bourse.CodeOf(err) != bourse.CodeNotFound {
			errs = append(errs, fmt.Errorf("unmount volume %s: %w", mount.Volume, err))
		}
	}
	return errors.Join(errs...)
}
