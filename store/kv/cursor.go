package kv

import (
	"bytes"

	"github.com/tidwall/btree"
	"go.etcd.io/bbolt"
)

// cursor merges the keys that the layers of a snapshot have of one bucket. It
// begins with Seek or First and goes on with Next, or begins with Before or
// Last and goes on with Prev. A key of nil is the end. Keys and values are not
// to be changed, and are good as long as the transaction.
type cursor struct {
	sources []source // newest first
	back    bool
}

// source is one layer's part of a cursor: the key that it stands at, nil at
// its end.
type source interface {
	seek(from []byte) // to the first key that is not before from
	before(end []byte)
	step(back bool)
	at() (key, value []byte) // a value of nil: the key was removed
}

// First returns the first key.
func (c *cursor) First() (key, value []byte) { return c.Seek(nil) }

// Seek returns the first key that is not before from.
func (c *cursor) Seek(from []byte) (key, value []byte) {
	c.back = false
	for _, s := range c.sources {
		s.seek(from)
	}
	return c.nearest()
}

// Before returns the last key that is before end; of nil the last of all.
func (c *cursor) Before(end []byte) (key, value []byte) {
	c.back = true
	for _, s := range c.sources {
		s.before(end)
	}
	return c.nearest()
}

// Next returns the key after the last one.
func (c *cursor) Next() (key, value []byte) { return c.nearest() }

// Prev returns the key before the last one.
func (c *cursor) Prev() (key, value []byte) { return c.nearest() }

// nearest returns the nearest key of all sources that was not removed, as its
// newest source has it, and moves all past it.
func (c *cursor) nearest() (key, value []byte) {
	for {
		key, value = nil, nil
		for _, s := range c.sources {
			if k, v := s.at(); k != nil && (key == nil || c.nearer(k, key)) {
				key, value = k, v
			}
		}
		if key == nil {
			return nil, nil
		}
		for _, s := range c.sources {
			if k, _ := s.at(); k != nil && bytes.Equal(k, key) {
				s.step(c.back)
			}
		}
		if value != nil {
			return key, value
		}
	}
}

// nearer reports whether a comes before b in the cursor's direction.
func (c *cursor) nearer(a, b []byte) bool {
	if c.back {
		a, b = b, a
	}
	return bytes.Compare(a, b) < 0
}

// treeSource is the changes of a bucket.
type treeSource struct {
	bucket string
	iter   btree.IterG[change]
	valid  bool
}

func (s *treeSource) seek(from []byte) {
	s.set(s.iter.Seek(change{bucket: s.bucket, key: from}))
}

func (s *treeSource) before(end []byte) {
	pivot := change{bucket: s.bucket, key: end}
	if end == nil {
		pivot.bucket += "\x00" // after all of the bucket's
	}
	if s.iter.Seek(pivot) {
		s.step(true)
		return
	}
	s.set(s.iter.Last())
}

func (s *treeSource) step(back bool) {
	if back {
		s.set(s.iter.Prev())
		return
	}
	s.set(s.iter.Next())
}

func (s *treeSource) set(valid bool) { s.valid = valid && s.iter.Item().bucket == s.bucket }

func (s *treeSource) at() (key, value []byte) {
	if !s.valid {
		return nil, nil
	}
	c := s.iter.Item()
	return c.key, c.value
}

// fileSource is a bucket of the file.
type fileSource struct {
	tx         *fileTx
	bucket     string
	cursor     *bbolt.Cursor
	key, value []byte
}

func (s *fileSource) set(key, stored []byte) {
	if s.key, s.value = key, nil; key != nil {
		s.value = s.tx.open(s.bucket, key, stored)
	}
}

func (s *fileSource) seek(from []byte) { s.set(s.cursor.Seek(from)) }

func (s *fileSource) before(end []byte) {
	if end != nil {
		if k, _ := s.cursor.Seek(end); k != nil {
			s.step(true)
			return
		}
	}
	s.set(s.cursor.Last())
}

func (s *fileSource) step(back bool) {
	if back {
		s.set(s.cursor.Prev())
		return
	}
	s.set(s.cursor.Next())
}

func (s *fileSource) at() (key, value []byte) { return s.key, s.value }
