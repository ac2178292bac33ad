package network

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
)

// dnsPort is the standard port of name servers.
const dnsPort = 53

// member is a machine on this host, as the firewall sees it.
type member struct {
	link  string
	group uint32 // number of the machine's private network
	ipv6  netip.Addr
	ipv4  netip.Addr
}

// remoteMember is a machine on another worker or a laptop, as the firewall sees it.
type remoteMember struct {
	group uint32 // number of its private network
	here  bool   // whether it is a laptop that is connected to this worker
}

// firewall manages the worker's nftables table. One transaction on the table's sets adds or removes a machine. If the
// kernel's table differs from the desired contents, it is rebuilt in one transaction, which does not break any
// connections.
type firewall struct {
	layout   *layout
	resolver netip.AddrPort
	deny     []netip.Prefix
	ns       int // file descriptor of the network namespace; 0 means the daemon's

	mu       sync.Mutex
	members  map[string]member           // members by the names of their links
	remotes  map[netip.Addr]remoteMember // machines on other workers, and laptops
	built    bool                        // whether the table has been built
	verified uint32                      // generation of the rules that were last verified; 0 if the rules must be verified
}

func newFirewall(m mark, port uint16, deny []netip.Prefix, mesh string) *firewall {
	return &firewall{
		layout: newLayout(m, mesh), resolver: netip.AddrPortFrom(m.resolver(), port), deny: deny,
		members: map[string]member{}, remotes: map[netip.Addr]remoteMember{},
	}
}

// add adds a machine.
func (f *firewall) add(m member) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.members[m.link] == m && f.built {
		return nil
	}
	f.members[m.link] = m
	return f.change(func(c *nftables.Conn) error { return f.layout.elements(c.SetAddElements, m) })
}

// remove removes a machine. It does nothing if the machine is unknown.
func (f *firewall) remove(link string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, ok := f.members[link]
	if !ok {
		return nil
	}
	delete(f.members, link)
	return f.change(func(c *nftables.Conn) error { return f.layout.elements(c.SetDeleteElements, m) })
}

// ensure builds the table unless it has already been built.
func (f *firewall) ensure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.built {
		return nil
	}
	return f.rebuild()
}

// setRemotes replaces the table's remote machines and laptops in one transaction. If the table has not been built yet,
// the new ones are added when it is built. If keep is set, machines that are missing from remotes are kept, but missing
// laptops are removed.
func (f *firewall) setRemotes(remotes map[netip.Addr]remoteMember, keep bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if keep {
		all := maps.Clone(f.remotes)
		maps.DeleteFunc(all, func(a netip.Addr, _ remoteMember) bool { return bourse.IsLaptopAddress(a) })
		maps.Copy(all, remotes)
		remotes = all
	}
	before := f.remotes
	if !f.built {
		f.remotes = maps.Clone(remotes)
		if len(f.members) == 0 {
			return nil
		}
		return f.rebuild() // again, because the last attempt failed
	}
	if maps.Equal(before, remotes) {
		return nil
	}
	gone, added := map[netip.Addr]remoteMember{}, map[netip.Addr]remoteMember{}
	for a, m := range before {
		if now, ok := remotes[a]; !ok || now != m {
			gone[a] = m
		}
	}
	for a, m := range remotes {
		if old, ok := before[a]; !ok || old != m {
			added[a] = m
		}
	}
	f.remotes = maps.Clone(remotes) // also for a rebuild
	err := f.change(func(c *nftables.Conn) error {
		if err := f.layout.remoteElements(c.SetDeleteElements, gone); err != nil {
			return err
		}
		return f.layout.remoteElements(c.SetAddElements, added)
	})
	if err != nil {
		f.remotes = before // so that the next call tries again
	}
	return err
}

// replace rebuilds the table with the given members. If this daemon has not built the table yet, an earlier daemon's
// table may still list machines on other workers, and laptops. In that case, replace keeps the listed addresses for
// which keep returns true. Without them, this host's machines could not exchange packets with them over new connections
// until this daemon has received its own list.
func (f *firewall) replace(members []member, keep func(group uint32, address netip.Addr) bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.built && len(f.remotes) == 0 && f.layout.mesh != "" {
		f.adoptRemotes(keep)
	}
	clear(f.members)
	for _, m := range members {
		f.members[m.link] = m
	}
	return f.rebuild()
}

// adoptRemotes reads an earlier daemon's table. A remote machine or laptop that this table lists becomes part of the
// desired contents if keep returns true for it. If there is no such table or the table cannot be read, adoptRemotes
// does nothing.
func (f *firewall) adoptRemotes(keep func(group uint32, address netip.Addr) bool) {
	c, err := f.conn()
	if err != nil {
		return
	}
	laptops, err := c.GetSetElements(f.layout.laptops)
	if err != nil {
		return
	}
	elements, err := c.GetSetElements(f.layout.remotes)
	if err != nil {
		return
	}
	for _, e := range elements {
		if len(e.Key) != 4+16 {
			continue
		}
		group, address := binaryutil.NativeEndian.Uint32(e.Key), netip.AddrFrom16([16]byte(e.Key[4:]))
		if keep(group, address) {
			here := slices.ContainsFunc(laptops, func(l nftables.SetElement) bool { return bytes.Equal(l.Key, e.Key[4:]) })
			f.remotes[address] = remoteMember{group, here}
		}
	}
}

// change executes one transaction. If the table has not been built yet, or if the transaction fails (for example
// because another program has flushed the rules), change rebuilds the whole table instead.
func (f *firewall) change(batch func(*nftables.Conn) error) error {
	if !f.built {
		return f.rebuild()
	}
	c, err := f.conn()
	if err != nil {
		return err
	}
	if err := batch(c); err != nil {
		return err
	}
	if err := c.Flush(); err != nil {
		return f.rebuild()
	}
	// If the generation has increased by only one, no other program has changed the rules.
	if now, err := f.generation(); err == nil && now == f.verified+1 {
		f.verified = now
	}
	return nil
}

// rebuild replaces the table in one transaction, so that the rules exist at all times.
func (f *firewall) rebuild() error {
	f.built = false
	c, err := f.conn()
	if err != nil {
		return err
	}
	// Add the table first, so that deleting it succeeds even if it did not exist.
	c.AddTable(f.layout.table)
	c.DelTable(f.layout.table)
	if err := f.layout.build(c, f.resolver, f.deny); err != nil {
		return err
	}
	// Add the members in chunks, because all elements in one message form a single attribute, whose size is limited to
	// 64 KiB.
	for some := range slices.Chunk(slices.Collect(maps.Values(f.members)), 256) {
		if err := f.layout.elements(c.SetAddElements, some...); err != nil {
			return err
		}
	}
	if err := f.layout.remoteElements(c.SetAddElements, f.remotes); err != nil {
		return err
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("build table %s: %w", f.layout.table.Name, err)
	}
	f.built = true
	f.verified = 0 // the new rules must be verified
	return nil
}

// delete removes the table, all members and all remotes.
func (f *firewall) delete() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.members)
	clear(f.remotes)
	f.built = false
	c, err := f.conn()
	if err != nil {
		return err
	}
	c.AddTable(f.layout.table)
	c.DelTable(f.layout.table)
	return c.Flush()
}

// conn returns a connection that has not opened a socket yet. Each batch opens its own socket, with buffers that are
// large enough for the largest batch.
func (f *firewall) conn() (*nftables.Conn, error) {
	return nftables.New(nftables.WithNetNSFd(f.ns), nftables.WithSockOptions(func(c *netlink.Conn) error {
		const room = 16 << 20 // memory is allocated only on demand
		return errors.Join(c.SetWriteBuffer(room), c.SetReadBuffer(room))
	}))
}

// elements passes each set to the do function, together with the set elements that represent the given members.
func (l *layout) elements(do func(*nftables.Set, []nftables.SetElement) error, members ...member) error {
	of := make(map[*nftables.Set][]nftables.SetElement, 4)
	for _, m := range members {
		link := make([]byte, unix.IFNAMSIZ)
		copy(link, m.link)
		add := func(s *nftables.Set, key ...[]byte) {
			of[s] = append(of[s], nftables.SetElement{Key: slices.Concat(key...)})
		}
		add(l.links, link)
		add(l.source4, link, m.ipv4.AsSlice())
		add(l.source6, link, m.ipv6.AsSlice())
		add(l.members, binaryutil.NativeEndian.PutUint32(m.group), m.ipv6.AsSlice())
	}
	for _, s := range l.memberSets() {
		if err := do(s, of[s]); err != nil {
			return err
		}
	}
	return nil
}

// remoteElements passes each set of remote machines or laptops to the do function, together with the set elements that
// represent the given remotes. It does this in chunks of at most 256 remotes.
func (l *layout) remoteElements(do func(*nftables.Set, []nftables.SetElement) error, remotes map[netip.Addr]remoteMember) error {
	for some := range slices.Chunk(slices.Collect(maps.Keys(remotes)), 256) {
		var pairs, addresses, laptops []nftables.SetElement
		for _, a := range some {
			number := binaryutil.NativeEndian.PutUint32(remotes[a].group)
			pairs = append(pairs, nftables.SetElement{Key: slices.Concat(number, a.AsSlice())})
			addresses = append(addresses, nftables.SetElement{Key: a.AsSlice()})
			if remotes[a].here {
				laptops = append(laptops, nftables.SetElement{Key: a.AsSlice(), Val: number})
			}
		}
		err := errors.Join(do(l.remotes, pairs), do(l.foreign, addresses))
		if len(laptops) > 0 {
			err = errors.Join(err, do(l.laptops, laptops))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
