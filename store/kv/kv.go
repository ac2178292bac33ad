package kv

import (
	"iter"

	"github.com/bourse-dev/bourse"
)

// Tx is a transaction: it reads a state and creates the next one. It is valid only during the call
// of the function that receives it, and only on that goroutine. Results must not be modified, and
// are valid as long as the transaction is. Sequences read lazily, so do not write during
// iteration.
type Tx interface {
	// Get returns the value of a key, or nil if there is none.
	Get(bucket string, key []byte) []byte
	// Put sets the value of a key. The value may be empty.
	Put(bucket string, key, value []byte) error
	// Delete removes a key. It does nothing if the key does not exist.
	Delete(bucket string, key []byte) error
	// Range returns the keys of a bucket and their values in ascending order, starting at from.
	Range(bucket string, from []byte) iter.Seq2[[]byte, []byte]
	// RangeBack returns the keys of a bucket and their values in descending order, starting before end,
	// or at the last key if end is nil.
	RangeBack(bucket string, end []byte) iter.Seq2[[]byte, []byte]
}

// Schema describes a store's buckets.
type Schema struct {
	Buckets []string
	Derived []string // buckets that Recover recomputes from the others
	Version int      // version of the schema; a store with another version is refused
}

var errReadOnly = bourse.Errorf(bourse.CodeInternal, "write in a read-only transaction")

// maxKey is the maximum size of a key in bytes.
const maxKey = 32 << 10

// checkKey returns CodeInternal if a key's size is invalid.
func checkKey(key []byte) error {
	if len(key) == 0 || len(key) > maxKey {
		return bourse.Errorf(bourse.CodeInternal, "key of %d bytes", len(key))
	}
	return nil
}
