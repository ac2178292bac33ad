package store

import (
	"slices"

	"go.etcd.io/bbolt"

	"github.com/bourse-dev/bourse/store/kv"
)

// The buckets; see the schema in doc.go.
const (
	bucketMeta          = kv.Meta
	bucketMachines      = "machines"
	bucketMachineApp    = "machine_app"
	bucketMachineName   = "machine_name"
	bucketMachinePort   = "machine_port"
	bucketMachineGone   = "machine_gone"
	bucketMachineLiving = "machine_living"
	bucketCommitted     = "committed"
	bucketOrders        = "orders"
	bucketOrderTime     = "order_time"
	bucketApps          = "apps"
	bucketLog           = "log"
	bucketLogOf         = "log_of"
	bucketRuns          = "runs"
	bucketRunKey        = "run_key"
	bucketRunOpen       = "run_open"
	bucketVolumes       = "volumes"
	bucketVolumeApp     = "volume_app"
	bucketVolumeGone    = "volume_gone"
	bucketSnapshots     = "snapshots"
	bucketTaskOpen      = "task_open"
	bucketTaskTime      = "task_time"
	bucketMachineTask   = "machine_task"
	bucketHolds         = "holds"
	bucketHoldOf        = "hold_of"
	bucketHoldEnd       = "hold_end"
	bucketVersions      = "versions"
	bucketAppKeys       = "app_keys"
)

// The buckets that each version added.
var (
	buckets1 = []string{
		bucketMeta, bucketMachines, bucketMachineApp, bucketMachineName, bucketMachinePort, bucketMachineGone, bucketMachineLiving,
		bucketCommitted, bucketOrders, bucketOrderTime, bucketApps, bucketLog, bucketLogOf, bucketRuns, bucketRunKey, bucketRunOpen,
	}
	buckets2   = []string{bucketVolumes, bucketVolumeApp, bucketVolumeGone, bucketSnapshots}
	buckets3   = []string{bucketTaskOpen, bucketTaskTime, bucketMachineTask, bucketHolds, bucketHoldOf, bucketHoldEnd}
	buckets10  = []string{bucketVersions}
	buckets11  = []string{bucketAppKeys}
	allBuckets = slices.Concat(buckets1, buckets2, buckets3, buckets10, buckets11)
)

// derivedBuckets are those that follow from the others.
var derivedBuckets = []string{
	bucketMachineApp, bucketMachineName, bucketMachinePort, bucketMachineGone, bucketMachineLiving, bucketCommitted,
	bucketOrderTime, bucketLogOf, bucketRunKey, bucketRunOpen, bucketVolumeApp, bucketVolumeGone, bucketSnapshots,
	bucketTaskOpen, bucketTaskTime, bucketMachineTask, bucketHoldOf, bucketHoldEnd,
}

// schema returns the history of the file, and what is special of some buckets:
// sums, and what is open, is small.
func schema() *kv.Schema {
	return &kv.Schema{
		Buckets: allBuckets,
		Small: []string{
			bucketMeta, bucketCommitted, bucketMachineLiving, bucketMachinePort, bucketMachineTask,
			bucketRunOpen, bucketTaskOpen, bucketHolds, bucketHoldOf, bucketHoldEnd,
		},
		Derived: derivedBuckets,
		Grows:   bucketLog,
		Migrations: []kv.Migration{
			kv.CreateBuckets(buckets1...),
			kv.CreateBuckets(buckets2...),
			kv.CreateBuckets(buckets3...),
			countLogged,        // from here on the store may have a write-ahead log beside it
			kv.CreateBuckets(), // from here on records of tasks may have a form of their own
			kv.CreateBuckets(), // from here on records may say their app's id, and keys begin with it
			kv.CreateBuckets(), // from here on the write-ahead log has a salt
			kv.Checksums(slices.Concat(buckets1, buckets2, buckets3)...), // from here on each value has a checksum in front
			kv.Records(recordsToCBOR),                                    // from here on records are CBOR
			kv.CreateBuckets(buckets10...),
			kv.CreateBuckets(buckets11...),
		},
	}
}

// countLogged moves the number of the last log entry to where the write-ahead
// log can have it.
func countLogged(tx *bbolt.Tx) error {
	return tx.Bucket([]byte(bucketMeta)).Put(keyLogged, uint64Bytes(tx.Bucket([]byte(bucketLog)).Sequence()))
}
