package lookup

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/inventory"
)

// Limits for AwaitView. The view usually receives a worker's changes within milliseconds. A query waits at most
// viewWait for them, because a worker that dies after replying never publishes its changes.
const (
	viewWait         = time.Second
	viewPollInterval = 5 * time.Millisecond // interval between two reads of the view
)

// AwaitView waits until the view has caught up with the machine and volume versions that this broker recently received
// from workers. A subsequent query therefore finds every change that the broker has reported to its clients. AwaitView
// waits at most viewWait, and returns early if the view cannot be read.
func AwaitView(ctx context.Context, machines *Machines, volumes *Volumes) {
	ctx, cancel := context.WithTimeout(ctx, viewWait)
	defer cancel()
	missingMachines, missingVolumes := machines.fresh.of(""), volumes.fresh.of("")
	for {
		if machines.drop(ctx, missingMachines) && volumes.drop(ctx, missingVolumes) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(viewPollInterval):
		}
	}
}

// drop removes machines from missing if the view contains the same or a later version. It returns true if none remain,
// or if the view cannot be read, in which case waiting would not help.
func (k *Machines) drop(ctx context.Context, missing map[bourse.MachineID]bourse.Machine) bool {
	for id, m := range missing {
		row, err := k.View.Machine(ctx, id)
		if err != nil {
			k.viewFailed(ctx, err)
			return true
		}
		ok := row != nil && k.isOwnersRow(row)
		if ok {
			k.fresh.sawInView(id, row.UpdatedAt)
		}
		if ok && !row.UpdatedAt.Before(m.UpdatedAt) || !ok && m.State == bourse.StateDestroyed {
			delete(missing, id)
		}
	}
	return len(missing) == 0
}

// drop is like [Machines.drop], but for volumes.
func (k *Volumes) drop(ctx context.Context, missing map[bourse.VolumeID]bourse.Volume) bool {
	if len(missing) == 0 {
		return true
	}
	rows, err := k.View.Volumes(ctx, inventory.VolumeFilter{})
	if err != nil {
		k.viewFailed(ctx, err)
		return true
	}
	listed := make(map[bourse.VolumeID]bool, len(missing))
	for i := range rows {
		row := &rows[i]
		v, awaited := missing[row.ID]
		if !awaited || !k.owns(row.Worker, row.ID.Tag()) {
			continue
		}
		listed[row.ID] = true
		k.fresh.sawInView(row.ID, row.UpdatedAt)
		if !row.UpdatedAt.Before(v.UpdatedAt) {
			delete(missing, row.ID)
		}
	}
	for id, v := range missing {
		if v.State == bourse.VolumeDestroyed && !listed[id] {
			delete(missing, id)
		}
	}
	return len(missing) == 0
}
