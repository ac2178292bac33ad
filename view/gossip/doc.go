// Package gossip maintains the cluster's membership without a central server.
//
// Every server is a member of one gossip group, which uses SWIM as implemented by
// hashicorp/memberlist. A member's metadata contains its identity, the address of its API and, for
// a worker, its region and tag. [Members] answers queries from a shared snapshot, so it is cheap
// enough to be used for each order. [Directory] adds the free capacity that workers publish in the
// view.
//
// If a member is lost, it disappears from every list within 5 s (see [Timing]). A server that
// returns, even on another port, immediately becomes a member again. A second running server with
// the same id is refused. Messages from outside the cluster are ignored and logged.
//
// A member's name in the gossip is "id@boot", where boot is a ULID that is created each time the
// server starts. A restarted server is therefore a new member, and nobody has to wait until its
// previous boot is declared dead.
//
// # Locks
//
// memberlist holds its own lock when it calls the delegate, which takes Members.mu. Therefore,
// memberlist must not be called while Members.mu is held.
package gossip
