// Package replication replicates the view among the servers of a cluster, so
// that each server can answer from its own copy.
//
// A [Replicator] uses three mechanisms. Each one delivers the changes that the previous one has
// missed:
//
//   - Rumors. When a member writes a transaction, or receives one for the first time, it sends the
//     transaction to random members in membership packets. It sends the whole transaction four
//     times, and after that, it sends only the position, eight times. The cost to each member does
//     not depend on the size of the group. If a transaction is too large for a packet, or if
//     transactions arrive faster than packets are sent, only positions are sent.
//   - Pulls. If a member receives the position of a transaction that it does not have, or detects a
//     gap in a stream, it requests the missing transactions over HTTP from a member that has
//     announced them. If it is too far behind, it receives a snapshot of the stream.
//   - Comparison. From time to time, a member compares the heads of all its streams with another
//     member's (see compare.go). It pulls the transactions that it is missing, and announces those
//     that the other member is missing. If rows differ although the positions are equal, they are
//     repaired with a snapshot from the site that owns them. Unsuccessful repairs are retried at
//     increasing intervals, and are listed by [Replicator.State].
//
// Every queue is bounded. Entries that do not fit are dropped, which only delays their replication.
// Every message begins with the wire version and a hash of the cluster's id. Messages that do not
// match are counted and dropped. Every endpoint serves a limited number of requests at once, and
// answers further ones with status 429.
//
// The locks of a Replicator's parts are leaf locks. While a goroutine holds one, it does not take
// any other lock, except the view's lock to look up the head of a stream.
package replication
