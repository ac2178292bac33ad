// Package kv implements the storage engine of package store: buckets of keys and values, with transactions. It does
// not know the records' types.
//
// A store is held in memory, in one copy-on-write tree. On the disk are a snapshot of the tree ([FileName]) and a
// write-ahead log of later changes, in two files that are used alternately. Both consist of records with checksums.
// [Open] refuses damaged files, and [Recover] recovers everything intact into a new store.
//
// # Group commit
//
// [Open] starts one goroutine, which [DB.Close] stops. It takes all transactions submitted since the last commit,
// executes them in order of submission, and appends the result to the log as one record. Concurrent writers thus
// share one sync, and a lone writer waits only for its own. Functions passed to Submit run on that goroutine: they
// must not block, and must not call Submit and wait.
//
// A transaction works on a copy of the tree, which readers see once it is durable. When a log file is full and as
// large as the last snapshot, a checkpoint writes a new snapshot next to the old one and renames it, while the other
// log file receives new records. [Open] reads the snapshot and the log records that it does not include.
//
// # Failures
//
// A commit for which the disk has no space changes nothing. Its transactions fail with CodeUnavailable, and the next
// commit may succeed. A checkpoint for which there is no space is repeated, and the log grows in the meantime. After
// any other error of a write or sync the disk's contents are unknown, and the store has failed: reads and writes
// return CodeTimeout (unknown), and Config.Failed ends the daemon. The next Open reads the actual contents.
package kv
