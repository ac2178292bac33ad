// Package gossip is how servers know of one another and how the view spreads:
// who is a member, and what each has written, with no server that others need.
//
// # Members
//
// Every server is a member of one gossip group (SWIM, by hashicorp/memberlist);
// who it is, where its API listens and, for a worker, its region and tag travel
// with its membership. [Members] answers from a snapshot that readers share, so
// that asking for each order costs nothing. [Directory] adds what workers say in
// the view to be free.
//
// What it promises: a member that is lost for good is gone from every list
// within 5 s (see [Timing]). A server that comes back, on whatever port, is
// taken back at once. A second living server with the same id is refused. What
// strangers gossip never does more harm than a line in the log.
//
// In the gossip a member is called "id@boot", where boot is a ULID made at
// each start: so the second life of a server is another member than the first,
// and nobody has to wait for the first to be declared dead.
//
// # Replication
//
// A [Replicator] spreads the view's transactions in three ways, each the net
// below the one before:
//
//   - Rumours. What we write, and what we hear for the first time, is told with
//     the packets of the membership to members of chance: whole, four times,
//     and then its position alone, eight times. What that costs each member
//     does not depend on the size of the group. What fits no packet, or comes
//     faster than packets go, is told by its position only.
//   - Pulls. Who hears of a position that it does not have, or finds a gap,
//     asks for the transactions over HTTP, of one who told of it. Who is too
//     far behind gets a snapshot of the stream.
//   - Comparison. Now and then a member compares the heads of all streams with
//     another one (see compare.go), pulls what it lacks and tells the other one
//     what that lacks. Rows that differ at equal positions are mended from
//     the site's own snapshot; what cannot be mended is tried ever less and told
//     of by [Replicator.State].
//
// Every queue is bounded and drops the oldest, which costs time and nothing
// else. Every message has the wire version and a check of the cluster's id in
// front; what does not fit is counted and dropped. Every endpoint serves a
// bounded number of requests at once and sends others away with 429.
//
// # Locks
//
// memberlist calls back with its own lock held, and then Members.mu is taken.
// So nothing of memberlist is called while Members.mu is held. The locks of a
// Replicator's parts are leaves: under them nothing is called, but for a stream's
// head, which takes the view's own lock.
package gossip
