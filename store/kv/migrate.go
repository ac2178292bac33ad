package kv

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/bourse-dev/bourse"
)

// Migration brings a file from the version before it to its own.
type Migration func(*bbolt.Tx) error

// versionChecksums is the first version in which each value has a checksum.
const versionChecksums = 8

// CreateBuckets makes new buckets. Without any it marks that what is in a file or in
// the log beside it has changed, so that older releases do not open it.
func CreateBuckets(names ...string) Migration {
	return func(tx *bbolt.Tx) error {
		for _, name := range names {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return fmt.Errorf("bucket %s: %w", name, err)
			}
			if tallies := tx.Bucket([]byte(bucketTallies)); tallies != nil { // since version 8
				if err := tallies.Put([]byte(name), seal(bucketTallies, []byte(name), tally{}.bytes())); err != nil {
					return fmt.Errorf("bucket %s: %w", name, err)
				}
			}
		}
		return nil
	}
}

// Checksums puts a checksum in front of every value of some buckets, and begins the
// tallies. It makes version 8.
func Checksums(buckets ...string) Migration {
	return func(tx *bbolt.Tx) error {
		tallies, err := tx.CreateBucket([]byte(bucketTallies))
		if err != nil {
			return fmt.Errorf("bucket %s: %w", bucketTallies, err)
		}
		for _, bucket := range buckets {
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
}

// Records changes what a file of version 8 or later holds.
func Records(change func(Tx) error) Migration {
	return func(tx *bbolt.Tx) error { return (&Schema{}).in(tx, change) }
}

// sealAtOnce bounds how many keys are read before they are written again.
const sealAtOnce = 1000

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

// migrate brings the file to a version, one transaction for each step: a crash
// leaves a file of some version, never one between two. A later version stays.
func (f *File) migrate(to int) error {
	have, err := f.version()
	if err != nil {
		return err
	}
	if have > f.schema.version() {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "the store has version %d, written by a newer release; this one knows %d", have, f.schema.version())
	}
	for n := have; n < to; n++ {
		err := f.db.Update(func(tx *bbolt.Tx) error {
			if err := f.schema.Migrations[n](tx); err != nil {
				return err
			}
			return setVersion(tx, n+1)
		})
		if err != nil {
			return bourse.Errorf(bourse.CodeUnavailable, "migrate to version %d: %w", n+1, err)
		}
	}
	return nil
}

// setVersion writes the version of a file, after the step of its migration.
func setVersion(tx *bbolt.Tx, n int) error {
	value := binary.BigEndian.AppendUint32(nil, uint32(n))
	if tx.Bucket([]byte(bucketTallies)) == nil {
		return tx.Bucket([]byte(Meta)).Put(keyVersion, value)
	}
	return (&Schema{}).in(tx, func(t Tx) error { return t.Put(Meta, keyVersion, value) })
}

// version reads the version of the file, 0 for a new one.
func (f *File) version() (n int, err error) {
	err = f.db.View(func(tx *bbolt.Tx) error {
		meta := tx.Bucket([]byte(Meta))
		if meta == nil {
			if name, _ := tx.Cursor().First(); name != nil {
				return bourse.Errorf(bourse.CodeInternal, "the file is not a worker's store")
			}
			return nil
		}
		b := meta.Get(keyVersion)
		if len(b) != 4 {
			return bourse.Errorf(bourse.CodeInternal, "the store has no version")
		}
		n = int(binary.BigEndian.Uint32(b))
		return nil
	})
	return n, err
}
