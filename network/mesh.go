package network

import (
	"context"
	"net/netip"

	"github.com/bourse-dev/bourse"
)

// Mesh is what carries packets between the machines of one private network on
// different workers. There is none yet: names answer with addresses of this
// worker's machines, packets reach only those, and others are rejected at once.
// Across workers the tunnel of the worker's API carries connections.
//
// The firewall will let a machine out through the mesh's interface to its own
// network, and in from it what the sending worker has checked: an address
// names its worker (32 bits after the network's 48), so a mesh can check that
// a peer sends only from its own addresses. Nothing else here has to change.
type Mesh interface {
	// Peers sets the other workers. It replaces the previous list:
	// routes of workers that are no longer in it are removed.
	Peers(ctx context.Context, peers []Peer) error
	// Interface names the link that leads to them.
	Interface() string
}

// Peer is another worker, as a mesh sees it.
type Peer struct {
	Worker    bourse.WorkerID
	Endpoint  netip.AddrPort // where its end of the mesh can be reached
	PublicKey []byte
	Machines  []netip.Prefix // of each network that it has machines in, an /80
}
