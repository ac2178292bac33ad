// Package gossip maintains the membership of the cluster without a central server.
//
// Every server is a member of one gossip group (SWIM, by hashicorp/memberlist). A member's metadata contains its
// identity, the address of its API and, for a worker, its region and tag. [Members] answers from a snapshot that
// readers share, so that using it for each order costs nothing. [Directory] adds the free capacity that workers
// publish in the view.
//
// A permanently lost member disappears from every list within 5 s (see [Timing]). A server that returns, on whatever
// port, is a member again at once. A second running server with the same id is refused. Messages from outside the
// cluster cause no more than a line in the log.
//
// A member's name in the gossip is "id@boot", where boot is a ULID created at each start. So a restarted server is a
// new member, and nobody has to wait until its previous boot is declared dead.
//
// # Locks
//
// memberlist calls back with its own lock held, and then Members.mu is taken. So memberlist must not be called while
// Members.mu is held.
package gossip
