package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/bourse-dev/bourse"
)

var keyVersion = []byte("version")

// migration brings a file from the version before it to its own.
type migration func(*bbolt.Tx) error

// versionSealed is the first version in which each value has a checksum.
const versionSealed = 8

// migrations is the history of the schema: the n-th entry makes version n+1.
// Entries are added, never changed: files of every age are in use.
func migrations() []migration {
	return []migration{
		createBuckets(buckets1),
		createBuckets(buckets2),
		createBuckets(buckets3),
		countLogged,        // from here on the store may have a write-ahead log beside it
		createBuckets(nil), // from here on records of tasks may be compact
		createBuckets(nil), // from here on records may say their app's id, and keys begin with it
		createBuckets(nil), // from here on the write-ahead log has a salt
		sealFile,           // from here on each value has a checksum in front
	}
}

// The buckets that each version added.
var (
	buckets1 = []string{
		bucketMeta, bucketMachines, bucketMachineApp, bucketMachineName, bucketMachinePort, bucketMachineGone, bucketMachineLiving,
		bucketCommitted, bucketOrders, bucketOrderTime, bucketApps, bucketLog, bucketLogOf, bucketRuns, bucketRunKey, bucketRunOpen,
	}
	buckets2   = []string{bucketVolumes, bucketVolumeApp, bucketVolumeGone, bucketSnapshots}
	buckets3   = []string{bucketTaskOpen, bucketTaskTime, bucketMachineTask, bucketHolds, bucketHoldOf, bucketHoldEnd}
	allBuckets = slices.Concat(buckets1, buckets2, buckets3)
)

// countLogged moves the number of the last log entry to where the write-ahead
// log can have it.
func countLogged(tx *bbolt.Tx) error {
	return tx.Bucket([]byte(bucketMeta)).Put(keyLogged, uint64Bytes(tx.Bucket([]byte(bucketLog)).Sequence()))
}

func createBuckets(names []string) migration {
	return func(tx *bbolt.Tx) error {
		for _, name := range names {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return fmt.Errorf("bucket %s: %w", name, err)
			}
		}
		return nil
	}
}

// migrate brings db to the present version, one transaction for each step: a
// crash leaves a file of some version, never one between two.
func migrate(db *bbolt.DB) error {
	all := migrations()
	have := 0
	if err := db.View(func(tx *bbolt.Tx) (err error) { have, err = version(tx); return err }); err != nil {
		return err
	}
	if have > len(all) {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "the store has version %d, written by a newer release; this one knows %d", have, len(all))
	}
	for n := have; n < len(all); n++ {
		err := db.Update(func(tx *bbolt.Tx) error {
			if err := all[n](tx); err != nil {
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
		return tx.Bucket([]byte(bucketMeta)).Put(keyVersion, value)
	}
	f := &file{tx: tx}
	return errors.Join(f.put(bucketMeta, keyVersion, value), f.settle())
}

// version reads the version of a file, 0 for a new one.
func version(tx *bbolt.Tx) (int, error) {
	meta := tx.Bucket([]byte(bucketMeta))
	if meta == nil {
		if name, _ := tx.Cursor().First(); name != nil {
			return 0, bourse.Errorf(bourse.CodeInternal, "the file is not a worker's store")
		}
		return 0, nil
	}
	b := meta.Get(keyVersion)
	if len(b) != 4 {
		return 0, bourse.Errorf(bourse.CodeInternal, "the store has no version")
	}
	return int(binary.BigEndian.Uint32(b)), nil
}
