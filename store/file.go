package store

import (
	"bytes"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/bourse-dev/bourse"
)

// bucketTallies has the tally of each other bucket.
const bucketTallies = "tallies"

// file is a transaction of the bbolt file. All values go into the file and come
// out of it through its methods, which put their checksums in front, and see to
// it that what is read is what was written.
type file struct {
	tx      *bbolt.Tx
	spoiled func(error)       // receives that a value is damaged
	tallies map[string]*tally // of the buckets that this transaction has written to
}

// errSpoiled is the error of a value that is not what was written.
func errSpoiled(bucket string, key []byte) error {
	return bourse.Errorf(bourse.CodeInternal, "%s is damaged: bucket %s, key %s: its checksum does not match", FileName, bucket, bourse.Quoted(string(key)))
}

// open returns the value in what is stored; nil when it is damaged, which ends
// the store.
func (f *file) open(bucket string, key, stored []byte) []byte {
	value, _, ok := unseal(bucket, key, stored)
	if !ok {
		f.spoiled(errSpoiled(bucket, key))
		return nil
	}
	return value
}

func (f *file) get(bucket string, key []byte) []byte {
	stored := f.tx.Bucket([]byte(bucket)).Get(key)
	if stored == nil {
		return nil
	}
	return f.open(bucket, key, stored)
}

func (f *file) cursor(bucket string) *fileSource {
	return &fileSource{file: f, bucket: bucket, cursor: f.tx.Bucket([]byte(bucket)).Cursor()}
}

// put keeps value; nil removes the key. The value must not change before the
// transaction ends.
func (f *file) put(bucket string, key, value []byte) error {
	b := f.tx.Bucket([]byte(bucket))
	t, err := f.tally(bucket)
	if err != nil {
		return err
	}
	if old := b.Get(key); old != nil {
		_, sum, ok := unseal(bucket, key, old)
		if !ok {
			return errSpoiled(bucket, key)
		}
		t.remove(sum)
	}
	if value == nil {
		return b.Delete(key)
	}
	t.add(sealOf(bucket, key, value))
	if bucket == bucketLog {
		b.FillPercent = 1 // it only grows at its end
	}
	return b.Put(key, seal(bucket, key, value))
}

// tally returns that of a bucket as the transaction has left it so far.
func (f *file) tally(bucket string) (*tally, error) {
	if t := f.tallies[bucket]; t != nil {
		return t, nil
	}
	name := []byte(bucket)
	value, _, ok := unseal(bucketTallies, name, f.tx.Bucket([]byte(bucketTallies)).Get(name))
	t, whole := tallyOf(value)
	if !ok || !whole {
		return nil, errSpoiled(bucketTallies, name)
	}
	if f.tallies == nil {
		f.tallies = map[string]*tally{}
	}
	f.tallies[bucket] = &t
	return &t, nil
}

// settle writes the tallies of what was written.
func (f *file) settle() error {
	b := f.tx.Bucket([]byte(bucketTallies))
	for bucket, t := range f.tallies {
		if err := b.Put([]byte(bucket), seal(bucketTallies, []byte(bucket), t.bytes())); err != nil {
			return err
		}
	}
	return nil
}

// updateFile executes fn in a transaction of the file.
func updateFile(db *bbolt.DB, fn func(*file) error) error {
	return db.Update(func(tx *bbolt.Tx) error {
		var spoiled error
		f := &file{tx: tx, spoiled: func(err error) { spoiled = err }}
		if err := fn(f); err != nil {
			return err
		}
		if spoiled != nil {
			return spoiled
		}
		return f.settle()
	})
}

// sealAtOnce bounds how many keys are read before they are written again.
const sealAtOnce = 1000

// sealFile puts a checksum in front of every value of a file that has none, and
// begins the tallies.
func sealFile(tx *bbolt.Tx) error {
	tallies, err := tx.CreateBucket([]byte(bucketTallies))
	if err != nil {
		return fmt.Errorf("bucket %s: %w", bucketTallies, err)
	}
	for _, bucket := range allBuckets {
		t, err := sealBucket(tx.Bucket([]byte(bucket)), bucket)
		if err != nil {
			return fmt.Errorf("bucket %s: %w", bucket, err)
		}
		name := []byte(bucket)
		if err := tallies.Put(name, seal(bucketTallies, name, t.bytes())); err != nil {
			return err
		}
	}
	return nil
}

func sealBucket(b *bbolt.Bucket, bucket string) (t tally, err error) {
	type pair struct{ key, value []byte }
	var last []byte
	for {
		var next []pair // a cursor is not good any more once its bucket has changed
		c := b.Cursor()
		k, v := c.Seek(last)
		if last != nil && bytes.Equal(k, last) {
			k, v = c.Next()
		}
		for ; k != nil && len(next) < sealAtOnce; k, v = c.Next() {
			next = append(next, pair{bytes.Clone(k), seal(bucket, k, v)})
			t.add(sealOf(bucket, k, v))
		}
		if len(next) == 0 {
			return t, nil
		}
		for _, p := range next {
			if err := b.Put(p.key, p.value); err != nil {
				return t, err
			}
		}
		last = next[len(next)-1].key
	}
}
