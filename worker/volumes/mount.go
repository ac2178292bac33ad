package volumes

import (
	"context"
	"errors"
	"fmt"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
)

// Attach records that the volumes in m's mounts belong to m, and copies the volumes' properties to
// the mounts. It returns CodeFailedPrecondition if a volume belongs to another live machine, and
// CodeNotFound if a volume does not exist.
func (vs *Volumes) Attach(tx *store.Tx, m *bourse.Machine) error {
	for i := range m.Config.Mounts {
		mount := &m.Config.Mounts[i]
		v, err := tx.Volume(mount.Volume)
		if err != nil {
			return fmt.Errorf("volume %s: %w", mount.Volume, err)
		}
		mount.Name, mount.SizeGB, mount.Encrypted = v.Spec.Name, v.Spec.SizeGB, v.Spec.Encrypted
		if v.Machine == m.ID {
			continue
		}
		switch holder, err := admit.HolderOf(tx, &v); {
		case err != nil:
			return err
		case holder != "":
			return bourse.Errorf(bourse.CodeFailedPrecondition, "volume %s already claimed by machine %s", v.ID, holder)
		}
		if _, err := changeRecord(tx, v.ID, "attach", func(v *bourse.Volume) (bool, error) { v.Machine = m.ID; return true, nil }); err != nil {
			return err
		}
		vs.state.Volumes.Submitted(v.ID)
	}
	return nil
}

// Detach records that m's volumes no longer belong to m. It is called in the transaction that
// records m as destroyed, and is idempotent.
func (vs *Volumes) Detach(tx *store.Tx, m *bourse.Machine) error {
	for _, mount := range m.Config.Mounts {
		_, err := changeRecord(tx, mount.Volume, "detach", func(v *bourse.Volume) (bool, error) {
			if v.Machine != m.ID {
				return false, nil
			}
			v.Machine = ""
			vs.state.Volumes.Submitted(v.ID)
			return true, nil
		})
		if err != nil && bourse.CodeOf(err) != bourse.CodeNotFound {
			return err
		}
	}
	return nil
}

// Mount mounts m's volumes on the host before m starts. If m is a virtual machine, it attaches them
// instead. Mount returns the mounts for m's driver, and is idempotent.
func (vs *Volumes) Mount(ctx context.Context, m *bourse.Machine) ([]driver.Mount, error) {
	prepare := vs.host.Mount
	if vs.admit.RunsVM(&m.Config) {
		prepare = vs.host.Attach
	}
	var out []driver.Mount
	for _, mount := range m.Config.Mounts {
		v, err := vs.current(mount.Volume)
		if err != nil {
			return nil, err
		}
		if v.Machine != m.ID || !v.State.Usable() { // two machines must never write to the same volume
			return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "volume %s is %s and belongs to machine %q", v.ID, v.State, v.Machine)
		}
		path, err := prepare(ctx, v.ID)
		if err != nil {
			return nil, fmt.Errorf("mount volume %s: %w", v.ID, err)
		}
		out = append(out, driver.Mount{Source: path, Target: mount.Path})
	}
	return out, nil
}

// Unmount undoes Mount once m's program has exited. It is idempotent.
func (vs *Volumes) Unmount(ctx context.Context, m *bourse.Machine) error {
	var errs []error
	for _, mount := range m.Config.Mounts {
		v, err := vs.current(mount.Volume)
		if bourse.CodeOf(err) == bourse.CodeNotFound || err == nil && v.Machine != m.ID { // the volume is gone, or belongs to another machine now
			continue
		}
		if err == nil {
			err = vs.host.Unmount(ctx, v.ID)
		}
		if err != nil && bourse.CodeOf(err) != bourse.CodeNotFound {
			errs = append(errs, fmt.Errorf("unmount volume %s: %w", mount.Volume, err))
		}
	}
	return errors.Join(errs...)
}
