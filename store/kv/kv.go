package kv

import (
	"iter"

	"github.com/bourse-dev/bourse"
)

// Tx is a transaction: it reads a state and makes the next one of it. It is valid
// during the call of the function that it was passed to, on that goroutine only.
// What it returns is not to be changed, and is good as long as the transaction.
// Sequences read as they go: nothing is to be written while one is ranged over.
type Tx interface {
	// Get returns the value of a key, nil when there is none.
	Get(bucket string, key []byte) []byte
	// Put sets the value of a key. An empty value is one.
	Put(bucket string, key, value []byte) error
	// Delete removes a key. One that is not there is no error.
	Delete(bucket string, key []byte) error
	// Range returns the keys of a bucket that are not before from, in order.
	Range(bucket string, from []byte) iter.Seq2[[]byte, []byte]
	// Back returns the keys of a bucket that are before end, or all when that is
	// nil, in reverse order.
	Back(bucket string, end []byte) iter.Seq2[[]byte, []byte]
}

// Schema describes what a store holds.
type Schema struct {
	Buckets []string
	Derived []string // those that follow from the others: Salvage has them derived again
	Version int      // a store of another version is refused
}

var errReadOnly = bourse.Errorf(bourse.CodeInternal, "a transaction that reads must not write")

// maxKey is the size of the largest key.
const maxKey = 32 << 10

// checkKey returns CodeInternal for a key that a store refuses.
func checkKey(key []byte) error {
	if len(key) == 0 || len(key) > maxKey {
		return bourse.Errorf(bourse.CodeInternal, "a key of %d bytes", len(key))
	}
	return nil
}
