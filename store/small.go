package store

import (
	"bytes"

	"go.etcd.io/bbolt"
)

// small tells whether all that a bucket holds is in memory too, in one tree
// without what was removed. Those are the buckets that nearly every transaction
// reads and that hold little at any time, though much passes through them: sums,
// and what is open. From them a checkpoint's removals are never to be skipped
// one by one, and the file is never searched.
func small(bucket string) bool {
	switch bucket {
	case bucketMeta, bucketCommitted, bucketMachineLiving, bucketMachinePort, bucketMachineTask,
		bucketRunOpen, bucketTaskOpen, bucketHolds, bucketHoldOf, bucketHoldEnd:
		return true
	}
	return false
}

// readSmall gives all that the file holds in small buckets.
func readSmall(file *bbolt.Tx) (*changes, error) {
	all := newChanges()
	for _, bucket := range allBuckets {
		if !small(bucket) {
			continue
		}
		err := file.Bucket([]byte(bucket)).ForEach(func(k, v []byte) error {
			all.Set(change{bucket, bytes.Clone(k), bytes.Clone(v)})
			return nil
		})
		all.Delete(change{bucket: bucketMeta, key: keyMoved}) // a checkpoint's own, and only in the file
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Glance is View for who reads small buckets only: the committed sums, what is
// held, what is open, and which machines are warm. It costs next to nothing.
// Reading anything else panics.
func (s *Store) Glance(fn func(*Tx) error) error {
	return fn(&Tx{layers: layers{snapshot: s.shown()}})
}

// verifySmall reports where the small buckets in memory differ from what the
// layers below have.
func (t *Tx) verifySmall() (errs []error) {
	for _, bucket := range allBuckets {
		if !small(bucket) {
			continue
		}
		want := map[string][]byte{}
		c := t.cursor(bucket)
		for k, v := c.First(); k != nil; k, v = c.Next() {
			want[string(k)] = v
		}
		if bucket == bucketMeta {
			delete(want, string(keyMoved))
		}
		errs = append(errs, t.compare(bucket, want)...)
	}
	return errs
}
