package kv

import (
	"bytes"
	"iter"
	"slices"
)

// logTx is a transaction of a DB: it reads a snapshot and the file below it.
type logTx struct {
	snapshot
	file   *fileTx
	writes *writes // of the commit that it becomes part of; nil: it must not write
}

var _ Tx = (*logTx)(nil)

// writes is what the transactions of a commit have written so far.
type writes struct {
	record []byte // of the write-ahead log
	undo   []undo // of the present transaction's writes
}

// undo is what a write has replaced.
type undo struct {
	tree *changes
	change
	had bool // else the tree had nothing of the key
}

// end releases the file.
func (t *logTx) end() { t.file.end() }

func (t *logTx) Get(bucket string, key []byte) []byte {
	at := change{bucket: bucket, key: key}
	if t.file.schema.small(bucket) {
		c, _ := t.small.Get(at)
		return c.value
	}
	if c, ok := t.latest.Get(at); ok {
		return c.value
	}
	if t.moving != nil {
		if c, ok := t.moving.Get(at); ok {
			return c.value
		}
	}
	return t.file.Get(bucket, key)
}

func (t *logTx) Put(bucket string, key, value []byte) error {
	if value == nil {
		value = []byte{}
	}
	return t.change(change{bucket: bucket, key: bytes.Clone(key), value: value})
}

func (t *logTx) Delete(bucket string, key []byte) error {
	return t.change(change{bucket: bucket, key: bytes.Clone(key)})
}

func (t *logTx) change(c change) error {
	if t.writes == nil {
		return errReadOnly
	}
	if err := checkKey(c.key); err != nil {
		return err
	}
	t.writes.record = appendOp(t.writes.record, &c)
	switch {
	case !t.file.schema.small(c.bucket):
		t.set(t.latest, c)
	case c.value != nil:
		t.set(t.small, c)
	default:
		if old, had := t.small.Delete(c); had {
			t.writes.undo = append(t.writes.undo, undo{t.small, old, true})
		}
	}
	return nil
}

func (t *logTx) set(tree *changes, c change) {
	old, had := tree.Set(c)
	if !had {
		old = c
	}
	t.writes.undo = append(t.writes.undo, undo{tree, old, had})
}

// rollback undoes all that t has written since the record had so many bytes.
func (t *logTx) rollback(mark int) {
	w := t.writes
	w.record = w.record[:mark]
	for _, u := range slices.Backward(w.undo) {
		if u.had {
			u.tree.Set(u.change)
		} else {
			u.tree.Delete(u.change)
		}
	}
}

func (t *logTx) Range(bucket string, from []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		c := t.cursor(bucket)
		for k, v := c.Seek(from); k != nil; k, v = c.Next() {
			if !yield(k, v) {
				return
			}
		}
	}
}

func (t *logTx) Back(bucket string, end []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		c := t.cursor(bucket)
		for k, v := c.Before(end); k != nil; k, v = c.Prev() {
			if !yield(k, v) {
				return
			}
		}
	}
}

// cursor returns the keys of a bucket, from all layers that have some of it.
func (t *logTx) cursor(bucket string) *cursor {
	if t.file.schema.small(bucket) {
		return &cursor{sources: []source{&treeSource{bucket: bucket, iter: t.small.Iter()}}}
	}
	c := &cursor{sources: make([]source, 0, 3)}
	for _, tree := range []*changes{t.latest, t.moving} {
		if tree != nil && tree.Len() > 0 {
			c.sources = append(c.sources, &treeSource{bucket: bucket, iter: tree.Iter()})
		}
	}
	c.sources = append(c.sources, t.file.cursor(bucket))
	return c
}
