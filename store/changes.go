package store

import (
	"bytes"
	"iter"
	"strings"

	"github.com/tidwall/btree"
)

// change is what is newest of one key and not in the file yet.
type change struct {
	bucket string
	key    []byte
	value  []byte // nil: the key was removed
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

// snapshot is a state of the store: the file, what a checkpoint is moving into
// it, and what came later. It is not changed any more.
type snapshot struct {
	latest *changes
	moving *changes // nil: there is no checkpoint under way
	small  *changes // all that the small buckets hold, and nothing of them is in the other two
}

// layers is a snapshot with its file, as a transaction reads it.
type layers struct {
	snapshot
	file *file
}

// end lets go of the file.
func (l *layers) end() { _ = l.file.tx.Rollback() } // of a read

// get gives the value of a key, nil when there is none.
func (l *layers) get(bucket string, key []byte) []byte {
	at := change{bucket: bucket, key: key}
	if small(bucket) {
		c, _ := l.small.Get(at)
		return c.value
	}
	if c, ok := l.latest.Get(at); ok {
		return c.value
	}
	if l.moving != nil {
		if c, ok := l.moving.Get(at); ok {
			return c.value
		}
	}
	return l.file.get(bucket, key)
}

// from gives the keys of a bucket from one on, in their order, with their
// values. They are not to be changed, and are good as long as the transaction.
func (l *layers) from(bucket string, key []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		if small(bucket) {
			l.small.Ascend(change{bucket: bucket, key: key}, func(c change) bool { return c.bucket == bucket && yield(c.key, c.value) })
			return
		}
		c := l.cursor(bucket)
		for k, v := c.Seek(key); k != nil; k, v = c.Next() {
			if !yield(k, v) {
				return
			}
		}
	}
}

// under gives the keys of a bucket that begin with prefix, each without it.
func (l *layers) under(bucket string, prefix []byte) iter.Seq[[]byte] {
	return func(yield func(rest []byte) bool) {
		for k := range l.from(bucket, prefix) {
			if !bytes.HasPrefix(k, prefix) || !yield(k[len(prefix):]) {
				return
			}
		}
	}
}

// cursor gives the keys of a bucket that is not small in their order, or in the
// reverse.
func (l *layers) cursor(bucket string) *cursor {
	c := &cursor{sources: make([]source, 0, 3)}
	for _, tree := range []*changes{l.latest, l.moving} {
		if tree != nil && tree.Len() > 0 {
			c.sources = append(c.sources, &treeSource{bucket: bucket, iter: tree.Iter()})
		}
	}
	c.sources = append(c.sources, l.file.cursor(bucket))
	return c
}
