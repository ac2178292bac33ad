package kv

import (
	"iter"

	"github.com/bourse-dev/bourse"
)

// Tx is a transaction: it reads a state and creates the next one. A Tx, and the keys and values
// that its methods return, are valid only on the goroutine of the function that receives the Tx,
// and only until that function returns. The keys and values must not be modified. Sequences read
// lazily, so do not write while you iterate over them.
type Tx interface {
	// Get returns the value of a key, or nil if there is none.
	Get(bucket string, key []byte) []byte
	// Put sets the value of a key. The value may be empty.
	Put(bucket string, key, value []byte) error
	// Delete removes a key. It does nothing if the key does not exist.
	Delete(bucket string, key []byte) error
	// Range returns a bucket's keys and values in ascending order, starting at the key from.
	Range(bucket string, from []byte) iter.Seq2[[]byte, []byte]
	// RangeBack returns a bucket's keys and values in descending order. It starts with the last key
	// before end or, if end is nil, with the bucket's last key.
	RangeBack(bucket string, end []byte) iter.Seq2[[]byte, []byte]
}

// Schema describes a store's buckets.
type Schema struct {
	Buckets []string
	Derived []string // buckets that Recover recomputes from the others
	Version int      // version of the schema; Open refuses a store with another version
}

var errReadOnly = bourse.Errorf(bourse.CodeInternal, "write in a read-only transaction")

// maxKey is the maximum size of a key in bytes.
const maxKey = 32 << 10

// checkKey returns CodeInternal if a key's size is invalid.
func checkKey(key []byte) error {
	if len(key) == 0 || len(key) > maxKey {
		return bourse.Errorf(bourse.CodeInternal, "key has %d bytes, want 1 to %d", len(key), maxKey)
	}
	return nil
}
