package kv

import (
	"bytes"
	"strings"

	"github.com/tidwall/btree"
)

// change is what is newest of one key and not in the file yet.
type change struct {
	bucket string
	key    []byte
	value  []byte // nil: the key was removed
}

// make makes the change in a transaction.
func (c *change) make(t Tx) error {
	if c.value == nil {
		return t.Delete(c.bucket, c.key)
	}
	return t.Put(c.bucket, c.key, c.value)
}

// changes is the changes of many keys, the latest of each, in the order of
// buckets and keys. Copying is cheap: copies share what neither changes.
type changes = btree.BTreeG[change]

// changesDegree keeps nodes small: each transaction copies those it touches.
const changesDegree = 16

func newChanges() *changes {
	return btree.NewBTreeGOptions(func(a, b change) bool {
		if c := strings.Compare(a.bucket, b.bucket); c != 0 {
			return c < 0
		}
		return bytes.Compare(a.key, b.key) < 0
	}, btree.Options{NoLocks: true, Degree: changesDegree})
}

// snapshot is what a state has beside the file: what a checkpoint is moving there,
// and what came later. It is not changed any more.
type snapshot struct {
	latest *changes
	moving *changes // nil: no checkpoint is in progress
	small  *changes // all that the small buckets hold, and nothing of them is in the other two
}
