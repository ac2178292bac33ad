// Package view maintains this server's copy of the data that all servers of the cluster publish.
// The copy is an SQLite file. It is only a hint: the authoritative data is in each worker's store.
// Every server has its own view, which does not depend on any other server's view. The server may
// delete its view at any time. This package does not use the network. Package view/replication
// transfers transactions and snapshots, view/query answers SQL queries, view/wire defines the data
// that sites publish, view/schema contains the file's tables, and view/inventory reads the
// cluster's contents.
//
// # Guarantees
//
//   - Each site's transactions are applied completely, exactly once and in order, even if they arrive repeatedly,
//     out of order or with gaps.
//   - Members with equal heads and equal shared rows have equal rows. Their digests are equal if and only if this
//     is the case, apart from collisions of 64-bit hashes.
//   - Merging is a pure function of two versions (wire.Order) whose result does not depend on their order, so members
//     need no consensus.
//   - Each site signs its transactions, and the broker that writes a shared row signs the row, so any member may
//     forward them. Forged data has no effect. There is one exception: the owned rows in a snapshot are not signed
//     by their site, so the member that sends the snapshot must be trusted.
//   - No external input crashes or blocks the view. A row that does not fit the schema is quarantined together with
//     its origin; the other rows of its transaction are applied. A transaction that causes a panic is skipped.
//   - Readers see a consistent state and never wait for the writer. Apply and SetPresence never block. Queues are
//     bounded, and dropped transactions are fetched again.
//   - kill -9 leaves an intact file with everything that Publish or Flush has acknowledged. A crash of the host may
//     lose the last commits; this server's stream then begins a new epoch. A damaged or deleted file, or one that
//     belongs to another server, is replaced by a new one; if the old file still exists, it is first moved aside. A
//     full disk only prevents writes.
//
// The view does not guarantee that other members have received the rows that this server has published (AwaitCopies
// in view/replication does), or that rows are still current. A member that was running but isolated from all others
// for longer than the retention of tombstones, which is a week, may restore shared rows that were deleted during that
// time.
//
// # State
//
// schema.sql describes the file. A site writes a stream of transactions, numbered within an epoch. A ring holds recent
// transactions of all streams in encoded form. A member that needs older ones receives a snapshot, which replaces the
// site's owned rows. When a site begins a greater epoch, its owned rows from earlier epochs are deleted; its shared
// rows remain. Heads and checksums are also in memory, and are updated after each commit.
//
// A column with its default value counts as absent: it is NULL on the wire and is left out of hashes. A row whose
// table or column does not exist in the schema is refused, like any other row that does not fit.
//
// # Goroutines and locks
//
// The package starts no goroutines. The goroutine that calls Run is the writer. Only the writer changes the file and
// View.state. It also calls the function that was passed to OnPublish. All other goroutines add work to View.jobs or
// View.intake, and wake the writer. The writer commits in batches. If a batch fails, the writer searches for the part
// that failed.
//
// View.mu guards the data that is shared with the writer. It is never held across I/O or a callback. pool.mu guards the
// readers' connections; no other lock is taken while holding it. An in-memory view has a single connection, which
// pool.slots assigns to a reader or the writer. The writer takes a spool's mu without holding View.mu.
package view
