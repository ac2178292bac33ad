package kv

import (
	"iter"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/bourse-dev/bourse"
)

// Tx is a transaction: it reads a state and makes the next one of it. It is valid
// during the call of the function that it was passed to, on that goroutine only.
// What it returns is not to be changed, and is good as long as the transaction.
// Sequences read as they go: nothing is to be written while one is ranged over.
type Tx interface {
	// Get returns the value of a key, nil when there is none.
	Get(bucket string, key []byte) []byte
	// Put sets the value of a key, which must not change before the transaction
	// is durable. An empty value is one.
	Put(bucket string, key, value []byte) error
	// Delete removes a key. One that is not there is no error.
	Delete(bucket string, key []byte) error
	// Range returns the keys of a bucket that are not before from, in order.
	Range(bucket string, from []byte) iter.Seq2[[]byte, []byte]
	// Back returns the keys of a bucket that are before end, or all when that is
	// nil, in reverse order.
	Back(bucket string, end []byte) iter.Seq2[[]byte, []byte]
}

// Meta is the bucket in which an engine keeps what it has to know of a file,
// beside what others put there.
const Meta = "meta"

// Keys of an engine in Meta.
var (
	keyVersion = []byte("version") // of the schema: uint32, big endian
	keyMoved   = []byte("moved")   // the number of the last record of the log that is in the file: uint64, big endian
	keySalt    = []byte("salt")    // of the log
)

// Schema describes the buckets of a file.
type Schema struct {
	Buckets []string // Meta is one of them
	// Small are those of them that are kept in memory, whole, and in the log:
	// they are read often and hold little at any time, though much passes through
	// them. What came and went between two checkpoints never gets to the file.
	// Meta is one of them.
	Small   []string
	Derived []string // those that follow from the others: Salvage has them derived again
	Grows   string   // the one that only grows at its end
	Version int      // a file of another version is refused
}

func (s *Schema) small(bucket string) bool { return slices.Contains(s.Small, bucket) }

var errReadOnly = bourse.Errorf(bourse.CodeInternal, "a transaction that reads must not write")

// checkKey reports CodeInternal for a key that no engine takes.
func checkKey(key []byte) error {
	if len(key) == 0 || len(key) > bbolt.MaxKeySize {
		return bourse.Errorf(bourse.CodeInternal, "a key of %d bytes", len(key))
	}
	return nil
}
