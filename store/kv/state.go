package kv

import (
	"bytes"
	"iter"
	"slices"
	"strings"

	"github.com/tidwall/btree"
)

// change sets a key in a bucket to a value, or removes the key.
type change struct {
	bucket string
	key    []byte
	value  []byte // nil to remove the key
}

// state contains a store's keys and values, sorted by bucket and key. Values are never nil. Copies
// are cheap, because they share unchanged nodes. A state is immutable once other goroutines can see
// it.
type state = btree.BTreeG[change]

// stateDegree keeps nodes small, because each transaction copies the nodes that it changes.
const stateDegree = 16

func newState() *state {
	return btree.NewBTreeGOptions(func(a, b change) bool {
		if c := strings.Compare(a.bucket, b.bucket); c != 0 {
			return c < 0
		}
		return bytes.Compare(a.key, b.key) < 0
	}, btree.Options{NoLocks: true, Degree: stateDegree})
}

// applyTo applies the change to a state, and returns the key's previous value, if any.
func (c change) applyTo(s *state) (old change, had bool) {
	if c.value == nil {
		return s.Delete(c)
	}
	return s.Set(c)
}

// stateTx is a transaction on a state.
type stateTx struct {
	state  *state
	writes *writes // changes of the commit that the transaction is part of; nil in a read-only transaction
}

var _ Tx = (*stateTx)(nil)

// writes collects the changes made by a commit's transactions.
type writes struct {
	record []byte   // the changes as a record for the write-ahead log
	undo   []change // previous values of the keys that the current transaction has changed, oldest change first
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
	old, had := c.applyTo(t.state)
	if !had {
		if c.value == nil {
			return nil // the key did not exist
		}
		old = change{bucket: c.bucket, key: c.key}
	}
	t.writes.record = appendOp(t.writes.record, &c)
	t.writes.undo = append(t.writes.undo, old)
	return nil
}

// rollback reverts all changes that t made. mark is the length that the commit's record had before
// t began.
func (t *stateTx) rollback(mark int) {
	t.writes.record = t.writes.record[:mark]
	for _, c := range slices.Backward(t.writes.undo) {
		c.applyTo(t.state)
	}
}

func (t *stateTx) Range(bucket string, from []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		t.state.Ascend(change{bucket: bucket, key: from}, func(c change) bool {
			return c.bucket == bucket && yield(c.key, c.value)
		})
	}
}

func (t *stateTx) RangeBack(bucket string, end []byte) iter.Seq2[[]byte, []byte] {
	pivot := change{bucket: bucket, key: end}
	if end == nil {
		pivot.bucket += "\x00" // start after the bucket's last key
	}
	return func(yield func(key, value []byte) bool) {
		t.state.Descend(pivot, func(c change) bool {
			if c.bucket == pivot.bucket && bytes.Equal(c.key, pivot.key) {
				return true // skip end itself
			}
			return c.bucket == bucket && yield(c.key, c.value)
		})
	}
}
