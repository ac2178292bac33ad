package kv

import (
	"iter"

	"go.etcd.io/bbolt"

	"github.com/bourse-dev/bourse"
)

// bucketTallies has the tally of each other bucket.
const bucketTallies = "tallies"

// fileTx is a transaction of a File. All values go into the file and come out of it
// through its methods, which put their checksums in front, and see to it that what is
// read is what was written.
type fileTx struct {
	tx      *bbolt.Tx
	schema  *Schema
	spoiled func(error)       // receives that a value is damaged
	tallies map[string]*tally // of the buckets that this transaction has written to
}

var _ Tx = (*fileTx)(nil)

// begin begins a transaction that reads, until its end is called.
func (f *File) begin(spoiled func(error)) (*fileTx, error) {
	tx, err := f.db.Begin(false)
	if err != nil {
		return nil, err
	}
	return &fileTx{tx: tx, schema: f.schema, spoiled: spoiled}, nil
}

// end ends a transaction that reads.
func (t *fileTx) end() { _ = t.tx.Rollback() }

// errSpoiled is the error of a value that is not what was written.
func errSpoiled(bucket string, key []byte) error {
	return bourse.Errorf(bourse.CodeInternal, "%s is damaged: bucket %s, key %s: its checksum does not match", FileName, bucket, bourse.Quoted(string(key)))
}

// open returns the value in what is stored; nil when it is damaged, which spoils
// the transaction.
func (t *fileTx) open(bucket string, key, stored []byte) []byte {
	value, _, ok := unseal(bucket, key, stored)
	if !ok {
		t.spoiled(errSpoiled(bucket, key))
		return nil
	}
	return value
}

func (t *fileTx) Get(bucket string, key []byte) []byte {
	stored := t.tx.Bucket([]byte(bucket)).Get(key)
	if stored == nil {
		return nil
	}
	return t.open(bucket, key, stored)
}

func (t *fileTx) Put(bucket string, key, value []byte) error {
	if value == nil {
		value = []byte{}
	}
	return t.change(change{bucket, key, value})
}

func (t *fileTx) Delete(bucket string, key []byte) error {
	return t.change(change{bucket: bucket, key: key})
}

func (t *fileTx) change(c change) error {
	if !t.tx.Writable() {
		return errReadOnly
	}
	if err := checkKey(c.key); err != nil {
		return err
	}
	b := t.tx.Bucket([]byte(c.bucket))
	sums, err := t.tally(c.bucket)
	if err != nil {
		return err
	}
	if old := b.Get(c.key); old != nil {
		_, sum, ok := unseal(c.bucket, c.key, old)
		if !ok {
			return errSpoiled(c.bucket, c.key)
		}
		sums.remove(sum)
	}
	if c.value == nil {
		return b.Delete(c.key)
	}
	sums.add(sealOf(c.bucket, c.key, c.value))
	if c.bucket == t.schema.Grows {
		b.FillPercent = 1
	}
	return b.Put(c.key, seal(c.bucket, c.key, c.value))
}

// tally returns that of a bucket as the transaction has left it so far.
func (t *fileTx) tally(bucket string) (*tally, error) {
	if sums := t.tallies[bucket]; sums != nil {
		return sums, nil
	}
	name := []byte(bucket)
	value, _, ok := unseal(bucketTallies, name, t.tx.Bucket([]byte(bucketTallies)).Get(name))
	sums, whole := tallyOf(value)
	if !ok || !whole {
		return nil, errSpoiled(bucketTallies, name)
	}
	if t.tallies == nil {
		t.tallies = map[string]*tally{}
	}
	t.tallies[bucket] = &sums
	return &sums, nil
}

// settle writes the tallies of what was written.
func (t *fileTx) settle() error {
	b := t.tx.Bucket([]byte(bucketTallies))
	for bucket, sums := range t.tallies {
		if err := b.Put([]byte(bucket), seal(bucketTallies, []byte(bucket), sums.bytes())); err != nil {
			return err
		}
	}
	return nil
}

func (t *fileTx) Range(bucket string, from []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		c := t.cursor(bucket)
		for c.seek(from); c.key != nil; c.step(false) {
			if !yield(c.key, c.value) {
				return
			}
		}
	}
}

func (t *fileTx) Back(bucket string, end []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		c := t.cursor(bucket)
		for c.before(end); c.key != nil; c.step(true) {
			if !yield(c.key, c.value) {
				return
			}
		}
	}
}

func (t *fileTx) cursor(bucket string) *fileSource {
	return &fileSource{tx: t, bucket: bucket, cursor: t.tx.Bucket([]byte(bucket)).Cursor()}
}
