// Package kv implements the storage engine of package store: buckets of keys and values, with
// transactions. It does not depend on the types of the values.
//
// A store keeps all data in memory, in one copy-on-write tree. The disk contains a snapshot of the
// tree ([FileName]) and a write-ahead log of later changes. The log consists of two files that are
// used alternately. The snapshot and the log consist of records with checksums. [Open] refuses
// damaged files, and [Recover] copies all intact records into a new store.
//
// # Group commit
//
// [Open] starts one goroutine, which [DB.Close] stops. It takes all transactions submitted since
// the last commit, executes them in order of submission, and appends their changes to the log as
// one record. Concurrent writers thus share one sync, and a single writer waits only for its own
// sync. Functions passed to Submit run on that goroutine, so they must not block, or call Submit
// and wait for the result.
//
// A transaction works on a copy of the tree, which readers see once the changes are durable. When
// a log file is full and as large as the last snapshot, a checkpoint writes a new snapshot next to
// the old one and renames it, while the other log file receives new records. [Open] reads the
// snapshot and the log records that the snapshot does not include.
//
// # Failures
//
// If the disk has no space for a commit, the commit changes nothing. Its transactions fail with
// CodeUnavailable, and the next commit may succeed. If there is no space for a checkpoint, the
// checkpoint is repeated, and the log grows in the meantime. After any other error of a write or
// sync, the disk's contents are unknown and the store has failed. From then on, reads and writes
// return CodeTimeout, which means that their outcome is unknown, and Config.Failed ends the
// daemon. The next Open reads the actual contents.
package kv
