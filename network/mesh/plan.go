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

// Worker is a worker as it describes itself in the view. Only its ID has been verified.
type Worker struct {
	ID   bourse.WorkerID
	Tag  bourse.WorkerTag
	Mesh *bourse.Mesh // nil if the worker is not part of the mesh
	Lost bool         // whether the membership has lost contact with the worker
}

// Machine is a machine that a broker has placed on a worker. Network is the private network of the machine's app.
type Machine struct {
	ID      bourse.MachineID
	Worker  bourse.WorkerID
	Network string
}

// Laptop is a device outside the cluster that may connect to a private network through one worker, its entry. Brokers
// sign this data.
type Laptop struct {
	ID        string
	Network   string
	Key       wgtypes.Key
	Entry     bourse.WorkerID
	CreatedAt time.Time
	ExpiresAt time.Time
}

// Peer is a peer of this worker: another worker that has a machine or a laptop in one of this worker's networks, or a
// laptop that connects through this worker.
type Peer struct {
	Worker   bourse.WorkerID // "" for a laptop
	Key      wgtypes.Key
	Endpoint netip.AddrPort   // zero if unknown; the peer must then connect first
	Address  netip.Addr       // address of the worker's host in the mesh, or of the laptop
	Machines []network.Remote // the worker's machines, and the laptops whose entry it is
	Network  string           // the laptop's private network
	Expires  time.Time        // when the laptop loses access
}

// remotes returns the machines and laptops that are reached through the peer.
func (p *Peer) remotes() []network.Remote {
	if p.Worker == "" {
		return []network.Remote{{Network: p.Network, Address: p.Address, Here: true}}
	}
	return p.Machines
}

// Plan returns the peers of the worker self: first workers, sorted by ID, then laptops. networks contains the names of
// the networks of self's machines. Plan ignores machines whose ID belongs to a different worker, workers that have not
// proved that they own their key, and laptops that have expired or use a worker's key. It is a pure function.
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

// admitted returns the laptops that may connect. It omits expired laptops, laptops with a worker's key, and, if several
// laptops have the same key, all except the first one created. Otherwise, anyone could disconnect a laptop or worker by
// creating a laptop with its public key.
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

// ownersOf returns each tag's owner. If several workers claim a tag, its owner is the worker that prefers the tag most,
// according to bourse.WorkerID.Tags. self always owns its own tag.
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

// Address returns the address of a worker's host in the mesh, fdaa:0:0:<tag>::1. It cannot be a machine's address,
// because those end in 2.
func Address(tag bourse.WorkerTag) netip.Addr {
	b := [16]byte{0: 0xfd, 1: 0xaa, 15: 1}
	binary.BigEndian.PutUint32(b[6:], uint32(tag))
	return netip.AddrFrom16(b)
}

// private contains the addresses of all machines and laptops.
var private = netip.MustParsePrefix("fdaa::/16")

// Usable returns the endpoint e, or the zero value if packets must not be sent to e.
func Usable(e netip.AddrPort) netip.AddrPort {
	a := e.Addr().Unmap()
	if !e.IsValid() || e.Port() == 0 || a.Zone() != "" || a.IsLoopback() || !a.IsGlobalUnicast() || private.Contains(a) || network.DefaultIPv4.Contains(a) {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a, e.Port())
}

// MTU returns the MTU for the mesh's link. outside is the MTU of the host's own network. WireGuard adds at most 80
// bytes to a packet. The result is at least 1280, the minimum for IPv6; if outside is too small for that, large packets
// are fragmented outside the tunnel.
func MTU(outside int) int { return max(1280, outside-80) }
