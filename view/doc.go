// Package view is this server's copy of what all servers of the cluster publish,
// in a SQLite file: a hint about everyone's truth. Every server has one, none
// needs that of another, and each may be deleted at any time. Nothing here knows
// the network; view/replication carries transactions and snapshots, view/query
// answers SQL. What sites write is in view/wire, the tables of the file are in
// view/schema, and what the cluster has is read with view/inventory.
//
// # What it promises
//
//   - A site's transactions are applied in their order, each whole and once,
//     whatever order, copies or gaps they come in.
//   - Members that have the same heads and the same shared rows have the same
//     rows: Digest is equal exactly then, up to a collision of 64-bit hashes.
//   - Merging is a function of two versions (wire.Merge) that does not depend on
//     the order, so that no one has to agree on anything.
//   - What a site says is signed by it, and a shared row by the broker that
//     wrote it, so that it does not matter who passes it on: what is forged
//     changes nothing. Only a snapshot's owned rows are the
//     word of who sends it.
//   - No byte from outside brings it down or holds it up. A row that does not
//     fit is quarantined alone, with its origin; what makes the code that
//     applies it panic is passed over.
//   - Readers see one state and never wait for the writer. Apply and
//     SetPresence never wait at all. Queues are bounded; what they drop comes
//     again.
//   - kill -9 at any moment leaves a sound file, and what Publish or Flush has
//     acknowledged in it. A crash of the host may lose the last commits: our
//     stream then begins a new epoch. A damaged, deleted or foreign file is
//     moved aside and made again; a full disk refuses writes and nothing else.
//
// What it does not promise: that others have received what we published
// (replication's Spread does), or that what it says is still so. A member that was
// alive but cut off from all others for more than a week, the retention of
// deletions, may bring back shared rows that were deleted meanwhile.
//
// # State
//
// schema.sql says what is in the file. A site writes a stream of
// transactions, numbered within an epoch; recent ones of all streams are kept
// encoded in a ring, and a member that is further behind gets a snapshot, which
// replaces the site's rows. A greater epoch ends the owned rows of those
// before it, not the shared ones. Heads and checksums are kept in memory as
// well, and change with each commit.
//
// A column that has its default counts as absent: on the wire it is NULL, in
// hashes it is left out. A row with a table or column that the schema doesn't
// have is refused like any other that doesn't fit it.
//
// # Goroutines and locks
//
// The package starts none. Run, in its caller's goroutine, is the writer: it
// alone changes the file and View.state, and calls what OnPublish has set.
// Everybody else puts work into View.jobs or View.intake and pokes it. It
// commits in batches; when a batch fails it looks for the part that is bad.
//
// View.mu guards what is shared with the writer and is never held over I/O or
// a callback. pool.mu guards the readers' connections and is taken alone. In
// memory there is one connection, which pool.slots hands to a reader or the
// writer. A spool's mu is taken by the writer without View.mu.
package view
