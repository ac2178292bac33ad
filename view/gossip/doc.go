// Package gossip maintains the membership of the cluster without a central server.
//
// Every server is a member of one gossip group (SWIM, by hashicorp/memberlist). A member's
// metadata contains its identity, the address of its API and, for a worker, its region and tag.
// [Members] answers queries from a shared snapshot, so using it for each order is cheap.
// [Directory] adds the free capacity that workers publish in the view.
//
// A permanently lost member disappears from every list within 5 s (see [Timing]). A server that
// returns, even on another port, is a member again at once. A second running server with the same
// id is refused. Messages from outside the cluster are ignored and logged.
//
// A member's name in the gossip is "id@boot", where boot is a ULID created at each start. A
// restarted server is therefore a new member, and nobody has to wait until its previous boot is
// declared dead.
//
// # Locks
//
// memberlist holds its own lock during callbacks, which take Members.mu. Therefore memberlist must
// not be called while Members.mu is held.
package gossip
