package store

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
)

// pruneBatch bounds how much one transaction of Prune removes: others wait for
// it.
const pruneBatch = 128

// mostGone is how many destroyed machines are kept, and so, with the bound of a
// config, what they may take of the disk: 2.5 GiB, and 20 MiB as they usually
// are.
const mostGone = 10_000

// Pruned counts what Prune has forgotten.
type Pruned struct{ Machines, Volumes, Orders, Tasks, Runs int }

// Prune forgets what ended longer than Config.Keep before now: destroyed
// machines, of which at most 10 000 are kept, and volumes with their log, orders that nothing recorded fills, ended
// tasks and runs. What belongs to a living machine or volume, or to a volume that still
// has a snapshot, is never touched.
func (s *Store) Prune(ctx context.Context, now time.Time) (Pruned, error) {
	var total Pruned
	before := now.Add(-s.keep)
	for _, x := range []struct {
		count *int
		prune func(*Tx) (int, error)
	}{
		{&total.Machines, func(t *Tx) (int, error) { return t.pruneMachines(before, pruneBatch) }},
		{&total.Volumes, func(t *Tx) (int, error) { return t.pruneVolumes(before, pruneBatch) }},
		{&total.Orders, func(t *Tx) (int, error) { return t.PruneOrders(before, pruneBatch) }},
		{&total.Tasks, func(t *Tx) (int, error) { return t.pruneTasks(before, pruneBatch) }},
		{&total.Runs, func(t *Tx) (int, error) { return t.PruneRuns(before, pruneBatch) }},
		{&total.Machines, func(t *Tx) (int, error) {
			return t.pruneMachines(now, min(t.excess(bucketMachineGone, s.most), pruneBatch))
		}},
	} {
		for n := pruneBatch; n == pruneBatch; *x.count += n {
			err := s.Update(ctx, func(t *Tx) (err error) { n, err = x.prune(t); return err })
			if err != nil {
				return total, err
			}
		}
	}
	return total, nil
}

// pruneMachines deletes at most most machines that were destroyed before a
// time, oldest first.
func (t *Tx) pruneMachines(before time.Time, most int) (int, error) {
	old := t.gone(bucketMachineGone, before, most)
	for _, id := range old {
		if err := t.DeleteMachine(bourse.MachineID(id)); err != nil {
			return 0, err
		}
	}
	return len(old), nil
}

// excess returns how many entries a bucket has beyond most.
func (t *Tx) excess(bucket string, most int) int {
	n := -most
	for range t.from(bucket, nil) {
		n++
	}
	return max(0, n)
}

// pruneVolumes deletes at most most volumes of which nothing was left before a
// time, oldest first.
func (t *Tx) pruneVolumes(before time.Time, most int) (int, error) {
	old := t.gone(bucketVolumeGone, before, most)
	for _, id := range old {
		if err := t.DeleteVolume(bourse.VolumeID(id)); err != nil {
			return 0, err
		}
	}
	return len(old), nil
}

// gone gives at most most ids of an index by time that are from before a time,
// oldest first.
func (t *Tx) gone(bucket string, before time.Time, most int) []string {
	var old []string
	for k := range t.from(bucket, nil) {
		at, id := splitTimeKey(k)
		if !at.Before(before) || len(old) == most {
			break
		}
		old = append(old, id)
	}
	return old
}
