package store

import (
	"context"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/bourse-dev/bourse"
)

// pruneBatch is the maximum number of records that Prune deletes in one transaction. While this transaction executes,
// all others have to wait.
const pruneBatch = 128

// Defaults for the maximum numbers of destroyed machines and ended runs that Prune retains. Limits
// are necessary because the whole store is in memory, and a worker may start many short-lived
// machines within Config.Keep. The size of destroyed machines' records is also limited; see
// [MaxDestroyedBytes].
const (
	maxDestroyed = 10_000
	maxRuns      = 20_000 // a run is never deleted within a minute of its end
)

// Pruned contains the number of deleted records of each kind.
type Pruned struct{ Machines, Volumes, Orders, Tasks, Runs int }

// Prune deletes records that became obsolete more than Config.Keep before now: destroyed machines and volumes with
// their log entries, orders whose machine, volume or hold no longer has a record, ended tasks, and ended runs. If more
// than 10,000 destroyed machines or 20,000 ended runs remain, it deletes the oldest of them, even if they became
// obsolete more recently. It never deletes data of a live machine or volume, or of a volume that still has a snapshot.
func (s *Store) Prune(ctx context.Context, now time.Time) (Pruned, error) {
	var total Pruned
	before := now.Add(-s.keep)
	for _, x := range []struct {
		count *int
		prune func(*Tx) (int, error)
	}{
		{&total.Machines, func(t *Tx) (int, error) { return pruneMachines(t, before, pruneBatch) }},
		{&total.Volumes, func(t *Tx) (int, error) { return pruneVolumes(t, before, pruneBatch) }},
		{&total.Orders, func(t *Tx) (int, error) { return pruneOrders(t, before, pruneBatch) }},
		{&total.Tasks, func(t *Tx) (int, error) {
			return t.deleteTasks(pruneBatch, func(ended time.Time, _ int64) bool { return ended.Before(before) })
		}},
		{&total.Runs, func(t *Tx) (int, error) { return pruneRuns(t, before, pruneBatch) }},
		{&total.Runs, func(t *Tx) (int, error) {
			open := excess(t, bucketRunOpen, 0)
			return pruneRuns(t, now.Add(-time.Minute), min(excess(t, bucketRunKey, s.maxRuns+open), pruneBatch))
		}},
		{&total.Machines, func(t *Tx) (int, error) {
			return pruneMachines(t, now, min(excess(t, bucketMachineDestroyed, s.maxDestroyed), pruneBatch))
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

// pruneMachines deletes at most limit machines that were destroyed before the given time, oldest first.
func pruneMachines(t *Tx, before time.Time, limit int) (int, error) {
	return deleteEach(expiredRecords(t, bucketMachineDestroyed, before, limit), func(id string) error { return t.DeleteMachine(bourse.MachineID(id)) })
}

// pruneVolumes deletes at most limit destroyed volumes without snapshots, oldest first. It retains those that
// were destroyed, or lost their last snapshot, at or after the given time.
func pruneVolumes(t *Tx, before time.Time, limit int) (int, error) {
	return deleteEach(expiredRecords(t, bucketVolumeDestroyed, before, limit), func(id string) error { return t.DeleteVolume(bourse.VolumeID(id)) })
}

// pruneOrders deletes at most limit orders that were recorded before the given time, oldest first. It retains an
// order as long as its machine, volume or hold has a record.
func pruneOrders(t *Tx, before time.Time, limit int) (int, error) {
	var old []string
	for k, filler := range t.kv.Range(bucketOrderTime, nil) {
		at, id := splitTimeKey(k)
		if !at.Before(before) || len(old) == limit {
			break
		}
		if len(filler) == 0 || t.kv.Get(bucketMachines, filler) == nil && t.kv.Get(bucketVolumes, filler) == nil && t.kv.Get(bucketHolds, filler) == nil {
			old = append(old, id)
		}
	}
	return deleteEach(old, func(id string) error { return orders.delete(t, []byte(id)) })
}

// pruneRuns deletes at most limit runs that ended before the given time, oldest first.
func pruneRuns(t *Tx, before time.Time, limit int) (int, error) {
	var old []string
	for id, k := range t.kv.Range(bucketRunKey, nil) {
		// The engine creates ids in ascending order, so all following runs are newer.
		if u, err := ulid.ParseStrict(string(id)); len(old) == limit || err == nil && u.Timestamp().After(before) {
			break
		}
		if t.kv.Get(bucketRunOpen, id) != nil {
			continue
		}
		rec, _, err := runs.get(t, k)
		if err != nil {
			return 0, err
		}
		if rec.UpdatedAt.Before(before) {
			old = append(old, string(k))
		}
	}
	return deleteEach(old, func(k string) error { return runs.delete(t, []byte(k)) })
}

// deleteEach calls del for each id, and returns the number of ids.
func deleteEach(ids []string, del func(id string) error) (int, error) {
	for _, id := range ids {
		if err := del(id); err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

// excess returns the number of keys by which a bucket exceeds the limit, or 0 if it does not exceed it.
func excess(t *Tx, bucket string, limit int) int {
	n := -limit
	for range t.kv.Range(bucket, nil) {
		n++
	}
	return max(0, n)
}

// expiredRecords reads a bucket that sorts ids by time. It returns at most limit ids from before the given time, oldest
// first.
func expiredRecords(t *Tx, bucket string, before time.Time, limit int) []string {
	var old []string
	for k := range t.kv.Range(bucket, nil) {
		at, id := splitTimeKey(k)
		if !at.Before(before) || len(old) == limit {
			break
		}
		old = append(old, id)
	}
	return old
}
