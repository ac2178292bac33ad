// Package replication replicates the view among the servers of a cluster, so
// that each server can answer from its own copy.
//
// A [Replicator] uses three mechanisms, each of which finds the changes that the previous one
// has missed:
//
//   - Rumors. A transaction that this member writes, or receives for the first time, is sent to
//     random members in the packets of the membership. First the whole transaction is sent four
//     times, and then only its position eight times. The cost to each member does not depend on
//     the size of the group. Transactions that are too large for a packet, or arrive faster than
//     packets are sent, are only announced by their positions.
//   - Pulls. A member that receives the position of a transaction that it does
//     not have, or finds a gap, requests the transactions over HTTP from a member
//     that announced them. If it is too far behind, it receives a snapshot of the
//     stream.
//   - Comparison. From time to time a member compares the heads of all streams
//     with another member's (see compare.go), pulls what it is missing and announces
//     what the other member is missing. Rows that differ at equal positions are repaired
//     from a snapshot of the site that owns them. Repairs that do not help are
//     retried at increasing intervals and listed by [Replicator.State].
//
// Every queue is bounded. Entries that do not fit are dropped, which only delays their
// replication. Every message begins with the wire version and a hash of the cluster's id; messages
// that do not match are counted and dropped. Every endpoint serves a bounded number of requests at
// once and answers further ones with 429.
//
// The locks of a Replicator's parts are leaf locks: a goroutine that holds one takes no other
// lock, except the view's own, to look up the head of a stream.
package replication
