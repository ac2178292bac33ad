package mesh

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/network"
)

// Worker is a worker as it describes itself in the view. Its site is verified, and nothing else.
type Worker struct {
	ID   bourse.WorkerID
	Tag  bourse.WorkerTag
	Mesh *bourse.Mesh // nil if the worker is not part of the mesh
	Lost bool         // the membership does not reach the worker
}

// Machine is a machine that a broker has placed on a worker, and the private network of its app.
type Machine struct {
	ID      bourse.MachineID
	Worker  bourse.WorkerID
	Network string
}

// Laptop is a device outside the cluster that may connect to a private network through one worker, its entry. Brokers
// have signed this.
type Laptop struct {
	ID        string
	Network   string
	Key       wgtypes.Key
	Entry     bourse.WorkerID
	CreatedAt time.Time
	ExpiresAt time.Time
}

// Peer is a peer of this worker: another worker that has a machine or a laptop in one of this worker's networks, or a
// laptop whose entry is this worker.
type Peer struct {
	Worker   bourse.WorkerID // "" for a laptop
	Key      wgtypes.Key
	Endpoint netip.AddrPort   // zero if this worker waits until the peer connects
	Address  netip.Addr       // of the worker's host, or of the laptop
	Machines []network.Remote // of the worker, including laptops whose entry it is
	Network  string           // of the laptop
	Expires  time.Time        // when the laptop is cut off
}

// remotes returns the addresses behind the peer, for package network.
func (p *Peer) remotes() []network.Remote {
	if p.Worker == "" {
		return []network.Remote{{Network: p.Network, Address: p.Address, Here: true}}
	}
	return p.Machines
}

// Plan returns the peers of a worker: first workers by ID, then laptops. self describes the worker, and networks are the
// names of its machines' networks. Plan ignores machines that are not their worker's, workers that have not proved that
// they own their key, and laptops that have expired or have a worker's key. It is a pure function.
func Plan(now time.Time, self Worker, networks []string, workers []Worker, machines []Machine, laptops []Laptop) []Peer {
	laptops = admitted(now, laptops, append(slices.Clone(workers), self))
	shared := map[string]bool{}
	for _, name := range networks {
		shared[name] = true
	}
	for _, l := range laptops {
		if l.Entry == self.ID {
			shared[l.Network] = true
		}
	}
	owners := ownersOf(self, workers)
	remotes := map[bourse.WorkerID][]network.Remote{}
	for _, m := range machines {
		if shared[m.Network] && m.ID.Validate() == nil && owners[m.ID.Tag()] == m.Worker {
			remotes[m.Worker] = append(remotes[m.Worker], network.Remote{Network: m.Network, Address: bourse.PrivateAddress(m.Network, m.ID)})
		}
	}
	for _, l := range laptops {
		if shared[l.Network] {
			remotes[l.Entry] = append(remotes[l.Entry], network.Remote{Network: l.Network, Address: bourse.LaptopAddress(l.Network, l.Key)})
		}
	}
	delete(remotes, self.ID)
	var peers []Peer
	own, _ := KeyOf(self.ID, self.Mesh)
	taken := map[wgtypes.Key]bool{own: true}
	for _, w := range slices.SortedFunc(slices.Values(workers), func(a, b Worker) int { return cmp.Compare(a.ID, b.ID) }) {
		list := remotes[w.ID]
		if len(list) == 0 || owners[w.Tag] != w.ID {
			continue
		}
		delete(remotes, w.ID)
		key, ok := KeyOf(w.ID, w.Mesh)
		if !ok || taken[key] { // only workers that share their private key can announce the same one
			continue
		}
		taken[key] = true
		slices.SortFunc(list, func(a, b network.Remote) int {
			return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Network, b.Network))
		})
		list = slices.CompactFunc(list, func(a, b network.Remote) bool { return a.Address == b.Address })
		peers = append(peers, Peer{Worker: w.ID, Key: key, Endpoint: Usable(w.Mesh.Endpoint), Address: Address(w.Tag), Machines: list})
	}
	for _, l := range laptops {
		if l.Entry == self.ID {
			peers = append(peers, Peer{Key: l.Key, Address: bourse.LaptopAddress(l.Network, l.Key), Network: l.Network, Expires: l.ExpiresAt})
		}
	}
	return peers
}

// admitted returns the laptops that have not expired, and of those with the same key, only the one that was created first.
// It omits those with a worker's key. Otherwise, anyone who knows the public key of a laptop or a worker could cut it off.
func admitted(now time.Time, laptops []Laptop, workers []Worker) []Laptop {
	laptops = slices.DeleteFunc(slices.Clone(laptops), func(l Laptop) bool { return !now.Before(l.ExpiresAt) })
	slices.SortFunc(laptops, func(a, b Laptop) int { return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID)) })
	used := map[wgtypes.Key]bool{}
	if len(laptops) == 0 {
		return nil
	}
	for _, w := range workers {
		if key, ok := KeyOf(w.ID, w.Mesh); ok {
			used[key] = true
		}
	}
	return slices.DeleteFunc(laptops, func(l Laptop) bool {
		again := used[l.Key]
		used[l.Key] = true
		return again
	})
}

// ownersOf returns the worker that owns each tag: of those that claim it, the one whose ID ranks it highest. self owns
// its tag in any case.
func ownersOf(self Worker, workers []Worker) map[bourse.WorkerTag]bourse.WorkerID {
	owners := map[bourse.WorkerTag]bourse.WorkerID{}
	for _, w := range workers {
		rank := w.ID.TagRank(w.Tag)
		if rank == bourse.TagChoices {
			continue
		}
		old, ok := owners[w.Tag]
		if !ok || cmp.Or(cmp.Compare(rank, old.TagRank(w.Tag)), cmp.Compare(w.ID, old)) < 0 {
			owners[w.Tag] = w.ID
		}
	}
	owners[self.Tag] = self.ID
	return owners
}

// Address returns the address of a worker's host in the mesh, fdaa:0:0:<tag>::1. Machines' addresses end in 2.
func Address(tag bourse.WorkerTag) netip.Addr {
	b := [16]byte{0: 0xfd, 1: 0xaa, 15: 1}
	binary.BigEndian.PutUint32(b[6:], uint32(tag))
	return netip.AddrFrom16(b)
}

// private contains all machines' addresses.
var private = netip.MustParsePrefix("fdaa::/16")

// Usable returns an endpoint, or the zero value if packets must not be sent there.
func Usable(e netip.AddrPort) netip.AddrPort {
	a := e.Addr().Unmap()
	if !e.IsValid() || e.Port() == 0 || a.Zone() != "" || a.IsLoopback() || !a.IsGlobalUnicast() || private.Contains(a) || network.DefaultIPv4.Contains(a) {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a, e.Port())
}

// MTU returns the mesh's MTU over a network with the given MTU. WireGuard adds at most 80 bytes over IPv6. Packets that
// no longer fit because of IPv6's minimum, 1280, are fragmented outside the tunnel.
func MTU(outside int) int { return max(1280, outside-80) }
