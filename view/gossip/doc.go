// Package gossip is how servers know of one another, with no server that others
// need.
//
// Every server is a member of one gossip group (SWIM, by hashicorp/memberlist);
// who it is, where its API listens and, for a worker, its region and tag travel
// with its membership. [Members] answers from a snapshot that readers share, so
// that asking for each order costs nothing. [Directory] adds what workers publish
// in the view to be free.
//
// What it promises: a member that is lost for good is gone from every list
// within 5 s (see [Timing]). A server that comes back, on whatever port, is
// a member again at once. A second living server with the same id is refused.
// What strangers gossip never does more harm than a line in the log.
//
// In the gossip a member is called "id@boot", where boot is a ULID made at
// each start: so the second life of a server is another member than the first,
// and no one has to wait for the first to be declared dead.
//
// # Locks
//
// memberlist calls back with its own lock held, and then Members.mu is taken.
// So nothing of memberlist is called while Members.mu is held.
package gossip
