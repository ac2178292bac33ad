package network

import (
	"context"
	"net/netip"

	"github.com/bourse-dev/bourse"
)

// Mesh carries packets between the machines of one private network on different workers. There is no implementation
// yet: names are answered with addresses of this worker's machines, only those are reachable, and packets to others
// are rejected at once. The tunnel of the worker's API carries connections between workers.
//
// The firewall will have to let a machine send to its own network through the mesh's interface, and accept from it
// packets that the sending worker has checked. An address contains its worker (32 bits after the network's 48), so a
// mesh can verify that a peer sends only from its own addresses. Nothing else in this package has to change.
type Mesh interface {
	// Peers replaces the list of the other workers. Routes of workers that are no longer in it are removed.
	Peers(ctx context.Context, peers []Peer) error
	// Interface returns the name of the link to the peers.
	Interface() string
}

// Peer is another worker in a mesh.
type Peer struct {
	Worker    bourse.WorkerID
	Endpoint  netip.AddrPort // address of the peer's end of the mesh
	PublicKey []byte
	Machines  []netip.Prefix // an /80 for each network in which the peer has machines
}
