// Package kv is the engine below package store: buckets of keys and values in a
// bbolt file, with transactions. It knows nothing of records.
//
// There are two engines, which pass one suite. [File] is the file alone: each
// transaction is synced. [DB] has a write-ahead log of two files in front of it,
// and many transactions share one sync.
//
// # Checksums
//
// Each value in the file has in front the CRC-32C (uint32, big endian) of its bucket,
// key and bytes, see seal. The bucket tallies has, for each other one, how many keys
// it has and the sum of their values' checksums (uint64 each, big endian). [Open]
// reads every page and value before bbolt does (package pages), and opens nothing
// that is damaged. [Salvage] makes a new file of what is whole.
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
// What is in the log and not in the file is also in memory, as a tree of changed
// keys that snapshots share; reads come from that and from the mapped file, and both
// change with the commit, never before it. When a file of the log is full, a
// checkpoint moves that tree into the bbolt file, in parts, while the other file of
// the log takes what comes. A part that is moved twice, after a crash, leaves the
// same. Close moves what is left; Open moves what a crash has left. The small buckets
// (see [Schema]) are a tree of their own, of all that they hold: a checkpoint writes
// the difference to what it wrote before.
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
