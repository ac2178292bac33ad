package store

import (
	"bytes"
)

// small tells whether all that a bucket holds is in memory, in one tree without
// what was removed. Those are the buckets that nearly every transaction reads and
// that hold little at any time, though much passes through them: sums, and what is
// open. What came and went between two checkpoints never gets to the file.
func small(bucket string) bool {
	switch bucket {
	case bucketMeta, bucketCommitted, bucketMachineLiving, bucketMachinePort, bucketMachineTask,
		bucketRunOpen, bucketTaskOpen, bucketHolds, bucketHoldOf, bucketHoldEnd:
		return true
	}
	return false
}

// readSmall gives all that the file holds in small buckets.
func readSmall(f *file) *changes {
	all := newChanges()
	for _, bucket := range allBuckets {
		if !small(bucket) {
			continue
		}
		c := f.cursor(bucket)
		for c.seek(nil); c.key != nil; c.step(false) {
			all.Set(change{bucket, bytes.Clone(c.key), bytes.Clone(c.value)})
		}
	}
	for _, key := range [][]byte{keyMoved, keySalt} { // only in the file
		all.Delete(change{bucket: bucketMeta, key: key})
	}
	return all
}

// addDifference adds to a tree of changes those that make of what small buckets
// held what they hold now.
func addDifference(to, held, now *changes) {
	held.Scan(func(c change) bool {
		if _, still := now.Get(c); !still {
			to.Set(change{bucket: c.bucket, key: c.key})
		}
		return true
	})
	now.Scan(func(c change) bool {
		if old, had := held.Get(c); !had || !bytes.Equal(old.value, c.value) {
			to.Set(c)
		}
		return true
	})
}
