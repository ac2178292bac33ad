// Package store persists a worker's records, together with the indexes and sums that are derived
// from them. The storage engine is package kv.
//
// # Schema, version 1
//
//	worker.db, worker.wal.0, worker.wal.1    the files; see package kv
//	│
//	├── meta
//	│   ├── "identity"                       Identity
//	│   ├── "cordon"                         bourse.Cordon, while the worker refuses orders
//	│   ├── "gone_bytes"                     uint64, big endian: the size of all destroyed machines' records
//	│   ├── "task_bytes"                     uint64, big endian: the approximate size of all ended tasks' records
//	│   └── "logged"                         uint64, big endian: the number of the last entry of log
//	├── machines
//	│   └── MachineID                        bourse.Machine, without its events
//	├── machine_app                          every machine
//	│   └── app 00 MachineID                 (empty); in keys, app is the app's id, or its name if the record contains no id
//	├── machine_name                         live machines
//	│   └── app 00 name                      MachineID
//	├── machine_port                         live machines that have a port
//	│   └── uint16, big endian               MachineID
//	├── machine_gone                         destroyed machines, oldest first
//	│   └── int64 time 00 MachineID          uint64, big endian: the size of its record
//	├── machine_living
//	│   └── app                              uint64, big endian: machines not destroyed; absent for 0
//	├── committed
//	│   └── resource                         int64, big endian: the sum of the Takes of machines, volumes and tasks, and the Remaining of holds; absent for 0
//	├── orders
//	│   └── OrderID                          OrderRecord
//	├── order_time                           every order except those for tasks, oldest first
//	│   └── int64 time 00 OrderID            MachineID, VolumeID, OrderID (for a hold), or empty (for a tombstone)
//	├── apps
//	│   └── AppName                          bourse.App
//	├── log                                  append-only
//	│   └── uint64 sequence                  Entry
//	├── log_of
//	│   └── kind 00 id 00 uint64 sequence    (empty)
//	├── runs
//	│   └── definition 00 resource 00 run    fsm.Record
//	├── run_key
//	│   └── run                              its key in runs
//	├── run_open                             runs that have not ended, oldest first
//	│   └── run                              its key in runs
//	├── volumes
//	│   └── VolumeID                         bourse.Volume, without its usage
//	├── volume_app                           every volume
//	│   └── app 00 VolumeID                  (empty)
//	├── volume_gone                          destroyed volumes without a snapshot, oldest first
//	│   └── int64 time 00 VolumeID           (empty)
//	├── snapshots                            every snapshot
//	│   └── SnapshotID                       VolumeID
//	├── task_open                            orders of tasks in progress
//	│   └── OrderID                          (empty)
//	├── task_time                            orders of ended tasks, sorted by when the tasks ended
//	│   └── int64 time 00 OrderID            uint64, big endian: the approximate size of its record
//	├── machine_task                         live machines that are warm for a task
//	│   └── app 00 task 00 MachineID         (empty)
//	├── holds
//	│   └── OrderID                          bourse.Hold
//	├── hold_of                              every hold
//	│   └── OrderID of all 00 OrderID        (empty); the key's first part is the reservation's [bourse.ReservationKey.All]
//	├── hold_end                             every hold, by expiry
//	│   └── int64 time 00 OrderID            (empty)
//	├── versions                             live machines
//	│   └── MachineID 00 InstanceID          bourse.Version
//	└── app_keys                             live machines whose order provided keys
//	    └── MachineID                        bourse.AppKeys, as raw bytes
//
// A record is the byte 3 followed by CBOR (package codec). A time is in nanoseconds since 1970. Parts of keys are
// separated by zero bytes, so no part may contain one.
//
// # Guarantees
//
//   - After Wait or Update has returned nil for a transaction, the transaction survives a crash at any
//     later time. Transactions become durable in the order in which they were submitted.
//   - If a transaction's function fails, the transaction has no effect on the store or on other transactions.
//   - Indexes and sums change in the same transaction as the records from which they are derived.
//     [Tx.Verify] checks this.
//   - A store with another schema version is neither opened nor changed.
package store
