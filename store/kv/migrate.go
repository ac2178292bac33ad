package kv

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/bourse-dev/bourse"
)

// prepare creates the buckets of a new file and refuses a file of another version.
func (f *File) prepare() error {
	have, err := f.version()
	switch {
	case err != nil:
		return err
	case have == f.schema.Version:
		return nil
	case have != 0:
		return bourse.Errorf(bourse.CodeFailedPrecondition, "the store has version %d, this program needs %d: start the release that wrote it", have, f.schema.Version)
	}
	err = f.db.Update(func(tx *bbolt.Tx) error {
		tallies, err := tx.CreateBucket([]byte(bucketTallies))
		if err != nil {
			return err
		}
		for _, bucket := range f.schema.Buckets {
			name := []byte(bucket)
			if _, err := tx.CreateBucket(name); err != nil {
				return fmt.Errorf("bucket %s: %w", bucket, err)
			}
			if err := tallies.Put(name, seal(bucketTallies, name, tally{}.bytes())); err != nil {
				return err
			}
		}
		return f.schema.in(tx, func(t Tx) error {
			return t.Put(Meta, keyVersion, binary.BigEndian.AppendUint32(nil, uint32(f.schema.Version)))
		})
	})
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "create the buckets: %w", err)
	}
	return nil
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
		b, _, ok := unseal(Meta, keyVersion, meta.Get(keyVersion))
		if !ok || len(b) != 4 {
			return bourse.Errorf(bourse.CodeInternal, "the store has no version")
		}
		n = int(binary.BigEndian.Uint32(b))
		return nil
	})
	return n, err
}
