// Package kv implements the storage engine of package store: a transactional key-value store with
// buckets. Values are opaque bytes.
//
// A store keeps all data in memory, in one copy-on-write tree. The disk contains a snapshot of the
// tree ([FileName]) and a write-ahead log of later changes. The log consists of two files that are
// used alternately. The snapshot and the log consist of records with checksums. [Open] refuses
// damaged files, and [Recover] copies all intact records into a new store.
//
// # Group commit
//
// [Open] starts one goroutine, which [DB.Close] stops. This goroutine takes all transactions submitted since the last
// commit, executes them in the order in which they were submitted, and appends their changes to the log as one record.
// Concurrent writers thus share one sync, and a single writer waits only for its own sync. Functions passed to Submit
// run on that goroutine, so they must not block. In particular, they must not wait for another transaction.
//
// A transaction works on a copy of the tree, which readers see once the changes are durable. When the current log file
// has reached a minimum size and is about as large as the last snapshot, a checkpoint writes a new snapshot, which
// replaces the old one. In the meantime, new records go to the other log file. [Open] reads the snapshot, and the log
// records that are newer than the snapshot.
//
// # Failures
//
// If the disk has no space for a commit, the commit does not change anything. Its transactions fail
// with CodeUnavailable, and the next commit may succeed. If there is no space for a checkpoint, the
// checkpoint is retried, and the log grows in the meantime. If a write or sync fails for any other
// reason, the disk's contents are unknown and the store has failed. Config.Failed then terminates
// the daemon. Until the daemon exits, reads and writes return CodeTimeout, which means that their
// outcome is unknown. The next Open reads the actual contents of the disk.
package kv
