package kv

import (
	"bytes"
	"iter"
	"slices"
	"strings"

	"github.com/tidwall/btree"
)

// change sets a key of a bucket to a value, or removes it.
type change struct {
	bucket string
	key    []byte
	value  []byte // nil: the key is removed
}

// state is the contents of a store, sorted by bucket and key. No value in it is nil.
// Copying is cheap, because copies share what neither of them has changed. A state
// that other goroutines can see is never changed.
type state = btree.BTreeG[change]

// stateDegree keeps nodes small, because each transaction copies those it touches.
const stateDegree = 16

func newState() *state {
	return btree.NewBTreeGOptions(func(a, b change) bool {
		if c := strings.Compare(a.bucket, b.bucket); c != 0 {
			return c < 0
		}
		return bytes.Compare(a.key, b.key) < 0
	}, btree.Options{NoLocks: true, Degree: stateDegree})
}

// makeIn applies the change to a state and returns the key's previous value.
func (c change) makeIn(s *state) (old change, had bool) {
	if c.value == nil {
		return s.Delete(c)
	}
	return s.Set(c)
}

// stateTx is a transaction on a state.
type stateTx struct {
	state  *state
	writes *writes // of the commit that it becomes part of; nil: it must not write
}

var _ Tx = (*stateTx)(nil)

// writes is what the transactions of a commit have written so far.
type writes struct {
	record []byte   // of the write-ahead log
	undo   []change // what undoes the present transaction's writes, in their order
}

func (t *stateTx) Get(bucket string, key []byte) []byte {
	c, _ := t.state.Get(change{bucket: bucket, key: key})
	return c.value
}

func (t *stateTx) Put(bucket string, key, value []byte) error {
	return t.change(change{bucket, bytes.Clone(key), append([]byte{}, value...)})
}

func (t *stateTx) Delete(bucket string, key []byte) error {
	return t.change(change{bucket: bucket, key: bytes.Clone(key)})
}

func (t *stateTx) change(c change) error {
	if t.writes == nil {
		return errReadOnly
	}
	if err := checkKey(c.key); err != nil {
		return err
	}
	old, had := c.makeIn(t.state)
	if !had {
		if c.value == nil {
			return nil // there was nothing to remove
		}
		old = change{bucket: c.bucket, key: c.key}
	}
	t.writes.record = appendOp(t.writes.record, &c)
	t.writes.undo = append(t.writes.undo, old)
	return nil
}

// rollback undoes all that t has written since the record had so many bytes.
func (t *stateTx) rollback(mark int) {
	t.writes.record = t.writes.record[:mark]
	for _, c := range slices.Backward(t.writes.undo) {
		c.makeIn(t.state)
	}
}

func (t *stateTx) Range(bucket string, from []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		t.state.Ascend(change{bucket: bucket, key: from}, func(c change) bool {
			return c.bucket == bucket && yield(c.key, c.value)
		})
	}
}

func (t *stateTx) Back(bucket string, end []byte) iter.Seq2[[]byte, []byte] {
	pivot := change{bucket: bucket, key: end}
	if end == nil {
		pivot.bucket += "\x00" // after all of the bucket's
	}
	return func(yield func(key, value []byte) bool) {
		t.state.Descend(pivot, func(c change) bool {
			if c.bucket == pivot.bucket && bytes.Equal(c.key, pivot.key) {
				return true // the end itself is not part of it
			}
			return c.bucket == bucket && yield(c.key, c.value)
		})
	}
}
