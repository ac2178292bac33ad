package admit

import (
	"fmt"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

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
