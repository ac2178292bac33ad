// Package replication is how the view spreads: no server needs another one to
// know what the cluster has.
//
// A [Replicator] spreads the view's transactions in three ways, each the net
// below the one before:
//
//   - Rumours. What we write, and what we receive for the first time, goes with
//     the packets of the membership to random members: whole, four times,
//     and then its position alone, eight times. What that costs each member
//     does not depend on the size of the group. What fits no packet, or comes
//     faster than packets go, is announced by its position only.
//   - Pulls. A member that receives a position that it does not have, or finds
//     a gap, asks for the transactions over HTTP, of one that announced it. One
//     that is too far behind gets a snapshot of the stream.
//   - Comparison. Now and then a member compares the heads of all streams with
//     another one (see compare.go), pulls what it lacks and announces what the
//     other one lacks. Rows that differ at equal positions are repaired from
//     the site's own snapshot; what cannot be repaired is tried less and less
//     often, and listed by [Replicator.State].
//
// Every queue is bounded and drops the oldest, which costs time and nothing
// else. Every message has the wire version and a check of the cluster's id in
// front; what does not fit is counted and dropped. Every endpoint serves a
// bounded number of requests at once and answers others with 429.
//
// The locks of a Replicator's parts are leaves: under them nothing is called,
// but for a stream's head, which takes the view's own lock.
package replication
