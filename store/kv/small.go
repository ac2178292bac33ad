package kv

import (
	"bytes"
)

// readSmall returns all that the file holds in small buckets.
func (t *fileTx) readSmall() *changes {
	all := newChanges()
	for _, bucket := range t.schema.Small {
		for k, v := range t.Range(bucket, nil) {
			all.Set(change{bucket, bytes.Clone(k), bytes.Clone(v)})
		}
	}
	for _, key := range [][]byte{keyMoved, keySalt} { // only in the file
		all.Delete(change{bucket: Meta, key: key})
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
