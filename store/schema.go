package store

import "github.com/bourse-dev/bourse/store/kv"

// Names of the buckets; doc.go describes the schema.
const (
	bucketMeta             = "meta"
	bucketMachines         = "machines"
	bucketMachineApp       = "machine_app"
	bucketMachineName      = "machine_name"
	bucketMachinePort      = "machine_port"
	bucketMachineDestroyed = "machine_gone"
	bucketMachineLiving    = "machine_living"
	bucketCommitted        = "committed"
	bucketOrders           = "orders"
	bucketOrderTime        = "order_time"
	bucketApps             = "apps"
	bucketLog              = "log"
	bucketLogOf            = "log_of"
	bucketRuns             = "runs"
	bucketRunKey           = "run_key"
	bucketRunOpen          = "run_open"
	bucketVolumes          = "volumes"
	bucketVolumeApp        = "volume_app"
	bucketVolumeDestroyed  = "volume_gone"
	bucketSnapshots        = "snapshots"
	bucketTaskOpen         = "task_open"
	bucketTaskTime         = "task_time"
	bucketMachineTask      = "machine_task"
	bucketHolds            = "holds"
	bucketHoldOf           = "hold_of"
	bucketHoldEnd          = "hold_end"
	bucketVersions         = "versions"
	bucketAppKeys          = "app_keys"
)

var allBuckets = []string{
	bucketMeta, bucketMachines, bucketMachineApp, bucketMachineName, bucketMachinePort, bucketMachineDestroyed, bucketMachineLiving,
	bucketCommitted, bucketOrders, bucketOrderTime, bucketApps, bucketLog, bucketLogOf, bucketRuns, bucketRunKey, bucketRunOpen,
	bucketVolumes, bucketVolumeApp, bucketVolumeDestroyed, bucketSnapshots, bucketTaskOpen, bucketTaskTime, bucketMachineTask,
	bucketHolds, bucketHoldOf, bucketHoldEnd, bucketVersions, bucketAppKeys,
}

// derivedBuckets lists the buckets whose contents are derived from the other buckets.
var derivedBuckets = []string{
	bucketMachineApp, bucketMachineName, bucketMachinePort, bucketMachineDestroyed, bucketMachineLiving, bucketCommitted,
	bucketOrderTime, bucketLogOf, bucketRunKey, bucketRunOpen, bucketVolumeApp, bucketVolumeDestroyed, bucketSnapshots,
	bucketTaskOpen, bucketTaskTime, bucketMachineTask, bucketHoldOf, bucketHoldEnd,
}

// schema returns the schema for package kv.
func schema() *kv.Schema {
	return &kv.Schema{Buckets: allBuckets, Derived: derivedBuckets, Version: 1}
}
