// Package kv is the engine below package store: buckets of keys and values, with
// transactions. It knows nothing of records.
//
// All of a store is in memory, in one copy-on-write tree. On the disk are a snapshot of
// the tree ([FileName]) and a write-ahead log of what came later, in two files that
// take turns. Both consist of records with checksums; [Open] opens nothing that is
// damaged, and [Salvage] makes a new store of what is whole.
//
// # Group commit
//
// [Open] starts one goroutine, which [DB.Close] ends. It takes everything that was
// submitted since the last commit, executes it in order of submission, and writes
// the result as one record at the end of the log: callers that write at the same
// moment share one sync, and one that writes alone waits for nothing but its own.
// Functions passed to Submit run on that goroutine: they must not block, nor call
// Submit and wait.
//
// A transaction works on a copy of the tree, which readers see when it is durable. When
// a file of the log is full, and has as much as the last snapshot, a checkpoint writes a
// new snapshot beside the old one and renames it, while the other file of the log takes
// what comes. [Open] reads the snapshot and the log's records that it does not include.
//
// # Failures
//
// A commit for which the disk has no space has changed nothing; all who took part
// receive CodeUnavailable, and the next one may succeed. A checkpoint for which there
// is no space is repeated, and meanwhile the log grows. After any other error of a
// write or sync it is unknown what the disk holds: the store has failed. Reads and
// writes return CodeTimeout (unknown), and Config.Failed ends the daemon; the next
// Open reads what the disk does hold.
package kv
