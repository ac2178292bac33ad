package network

import (
	"bytes"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// layout is the static part of the worker's table. Machines appear only as set elements.
//
//	links      names of the machines' links
//	source4/6  link and address: permitted sources on a link
//	members    group and address: machines that links in a group may reach
//	remotes    likewise, for machines on other workers and for laptops, which are reached through the mesh
//	foreign    addresses of all remotes
//	laptops    laptops that are connected to this worker, with their groups
//
//	antispoof  prerouting, before conntrack: a machine can send only from its own addresses,
//	           and packets from laptops and other workers' machines can arrive only through the mesh
//	dnat       prerouting: the resolver's shared address is translated to this worker's own
//	forward    accepts replies, packets within a network (on this host and through the mesh), packets from laptops
//	           to other workers' machines in their network, and packets to outside addresses that are not denied
//	input      accepts packets to the host: DNS queries, pings, replies
//	output     accepts packets from the host to laptops: replies, and ICMP errors about their packets
//	snat       postrouting: packets to the outside are masqueraded
//	refuse     rejects packets, so that the sender fails immediately
type layout struct {
	table                                                       *nftables.Table
	mesh                                                        string // name of the mesh's link; "" if there is no mesh
	links, source4, source6, members, remotes, foreign, laptops *nftables.Set
	chains                                                      []builtChain
}

// builtChain is a chain that was added to the batch, with the number of its rules.
type builtChain struct {
	*nftables.Chain
	rules int
}

// Registers. A key with two fields occupies consecutive registers. The second field is in reg2 if
// the first field has 16 bytes, and in after4 if the first field has 4 bytes.
const (
	reg1   = unix.NFT_REG_1
	reg2   = unix.NFT_REG_2
	after4 = unix.NFT_REG32_01
)

func newLayout(m mark, mesh string) *layout {
	t := &nftables.Table{Name: m.table(), Family: nftables.TableFamilyINet}
	set := func(id uint32, name string, key ...nftables.SetDatatype) *nftables.Set {
		s := &nftables.Set{Table: t, ID: id, Name: name, KeyType: key[0], KeyByteOrder: binaryutil.NativeEndian}
		if len(key) > 1 {
			s.KeyType, s.Concatenation = nftables.MustConcatSetType(key...), true
		}
		return s
	}
	laptops := set(7, "laptops", nftables.TypeIP6Addr)
	laptops.IsMap, laptops.DataType = true, nftables.TypeDevGroup
	return &layout{
		table:   t,
		laptops: laptops,
		mesh:    mesh,
		links:   set(1, "links", nftables.TypeIFName),
		source4: set(2, "source4", nftables.TypeIFName, nftables.TypeIPAddr),
		source6: set(3, "source6", nftables.TypeIFName, nftables.TypeIP6Addr),
		members: set(4, "members", nftables.TypeDevGroup, nftables.TypeIP6Addr),
		remotes: set(5, "remotes", nftables.TypeDevGroup, nftables.TypeIP6Addr),
		foreign: set(6, "foreign", nftables.TypeIP6Addr),
	}
}

func (l *layout) sets() []*nftables.Set {
	return append(l.memberSets(), l.remotes, l.foreign, l.laptops)
}

func (l *layout) memberSets() []*nftables.Set {
	return []*nftables.Set{l.links, l.source4, l.source6, l.members}
}

// build adds the whole table, without members, to the batch.
func (l *layout) build(c *nftables.Conn, resolver netip.AddrPort, deny []netip.Prefix) error {
	c.AddTable(l.table)
	for _, s := range l.sets() {
		if err := c.AddSet(s, nil); err != nil {
			return err
		}
	}
	l.chains = nil
	l.add(c, &nftables.Chain{Table: l.table, Name: refuseChain}, refusal())
	chain := func(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority, rules ...[]expr.Any) {
		l.add(c, &nftables.Chain{Table: l.table, Name: name, Type: kind, Hooknum: hook, Priority: priority}, rules)
	}
	chain("antispoof", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw, l.antispoof()...)
	chain("dnat", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest, l.dnat(resolver)...)
	chain("forward", nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter, l.forward(deny)...)
	chain("input", nftables.ChainTypeFilter, nftables.ChainHookInput, nftables.ChainPriorityFilter, l.input(resolver)...)
	if l.mesh != "" {
		chain("output", nftables.ChainTypeFilter, nftables.ChainHookOutput, nftables.ChainPriorityFilter, l.output()...)
	}
	leaves := all(l.from(), l.to(true))
	if l.mesh != "" {
		leaves = all(leaves, load(expr.MetaKeyOIFNAME), differs(l.mesh))
	}
	chain("snat", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource, all(leaves, masquerade()))
	return nil
}

func (l *layout) add(c *nftables.Conn, chain *nftables.Chain, rules [][]expr.Any) {
	c.AddChain(chain)
	l.chains = append(l.chains, builtChain{chain, len(rules)})
	for _, r := range rules {
		c.AddRule(&nftables.Rule{Table: l.table, Chain: chain, Exprs: r})
	}
}

func (l *layout) antispoof() [][]expr.Any {
	rules := [][]expr.Any{
		all(family(unix.NFPROTO_IPV6), l.from(), load(expr.MetaKeyIIFNAME), field(ip6Source, reg2), lookup(l.source6, true), drop()),
		all(family(unix.NFPROTO_IPV4), l.from(), load(expr.MetaKeyIIFNAME), field(ip4Source, reg2), lookup(l.source4, true), drop()),
	}
	if l.mesh != "" {
		rules = append(rules, all(load(expr.MetaKeyIIFNAME), differs(l.mesh), family(unix.NFPROTO_IPV6), field(ip6Source, reg1), lookup(l.foreign, false), drop()))
	}
	return rules
}

func (l *layout) dnat(resolver netip.AddrPort) [][]expr.Any {
	var rules [][]expr.Any
	for _, protocol := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		for _, from := range l.clients() {
			rules = append(rules, all(from, family(unix.NFPROTO_IPV6), within6(netip.PrefixFrom(ResolverAddress, 128)), port(protocol, dnsPort),
				[]expr.Any{
					&expr.Immediate{Register: reg1, Data: resolver.Addr().AsSlice()},
					&expr.Immediate{Register: reg2, Data: binaryutil.BigEndian.PutUint16(resolver.Port())},
					&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV6, RegAddrMin: reg1, RegProtoMin: reg2},
				}))
		}
	}
	return rules
}

func (l *layout) forward(deny []netip.Prefix) [][]expr.Any {
	rules := [][]expr.Any{
		all(replies(), accept()),
		all(family(unix.NFPROTO_IPV6), l.from(), load(expr.MetaKeyIIFGROUP), field(ip6Target, after4), lookup(l.members, false), accept()),
	}
	if l.mesh != "" {
		// WireGuard has verified the source address of each packet from the mesh: the packet was sent by the worker to
		// which the address belongs, or by the laptop with this address.
		rules = append(rules,
			all(load(expr.MetaKeyOIFNAME), is(l.mesh), family(unix.NFPROTO_IPV6), toLaptop(), refuse()),
			all(l.fromLaptop(), load(expr.MetaKeyOIFNAME), is(l.mesh), l.laptopGroup(), field(ip6Target, after4), lookup(l.remotes, false), accept()),
			all(l.from(), load(expr.MetaKeyOIFNAME), is(l.mesh), family(unix.NFPROTO_IPV6), load(expr.MetaKeyIIFGROUP), field(ip6Target, after4), lookup(l.remotes, false), accept()),
			all(load(expr.MetaKeyIIFNAME), is(l.mesh), l.to(false), family(unix.NFPROTO_IPV6), load(expr.MetaKeyOIFGROUP), field(ip6Source, after4), lookup(l.remotes, false), accept()),
			all(load(expr.MetaKeyIIFNAME), is(l.mesh), refuse()),
			all(load(expr.MetaKeyOIFNAME), is(l.mesh), refuse()),
		)
	}
	rules = append(rules, all(l.to(false), refuse()))
	for _, p := range deny {
		f, in := byte(unix.NFPROTO_IPV6), within6
		if p.Addr().Is4() {
			f, in = unix.NFPROTO_IPV4, within4
		}
		rules = append(rules, all(l.from(), family(f), in(p), refuse()))
	}
	return rules
}

func (l *layout) input(resolver netip.AddrPort) [][]expr.Any {
	own := within6(netip.PrefixFrom(resolver.Addr(), 128))
	rules := [][]expr.Any{
		all(l.from(), replies(), accept()),
	}
	for _, from := range l.clients() {
		rules = append(rules,
			all(from, family(unix.NFPROTO_IPV6), own, port(unix.IPPROTO_UDP, resolver.Port()), accept()),
			all(from, family(unix.NFPROTO_IPV6), own, port(unix.IPPROTO_TCP, resolver.Port()), accept()),
		)
	}
	rules = append(rules,
		all(l.from(), echo(unix.IPPROTO_ICMPV6, 128), accept()),
		all(l.from(), echo(unix.IPPROTO_ICMP, 8), accept()),
		all(l.from(), refuse()),
	)
	if l.mesh != "" { // programs on the host need not communicate with other workers' machines
		rules = append(rules, all(load(expr.MetaKeyIIFNAME), is(l.mesh), drop()))
	}
	return rules
}

// output returns the rules for packets from the host itself. The host's programs must not connect to laptops.
func (l *layout) output() [][]expr.Any {
	return [][]expr.Any{
		all(replies(), accept()),
		all(load(expr.MetaKeyOIFNAME), is(l.mesh), family(unix.NFPROTO_IPV6), toLaptop(), refuse()),
	}
}

// clients returns one list of expressions for each kind of client of the resolver: this host's machines, and laptops
// connected to this worker. A packet that matches any of the lists comes from a client.
func (l *layout) clients() [][]expr.Any {
	if l.mesh == "" {
		return [][]expr.Any{l.from()}
	}
	return [][]expr.Any{l.from(), l.fromLaptop()}
}

// fromLaptop returns expressions that match packets from laptops that are connected to this worker.
func (l *layout) fromLaptop() []expr.Any {
	return all(load(expr.MetaKeyIIFNAME), is(l.mesh), family(unix.NFPROTO_IPV6), l.laptopGroup())
}

// laptopGroup returns expressions that match packets from laptops connected to this worker, and load the laptop's group
// into register 1.
func (l *layout) laptopGroup() []expr.Any {
	return all(field(ip6Source, reg1),
		[]expr.Any{&expr.Lookup{SourceRegister: reg1, DestRegister: reg1, IsDestRegSet: true, SetName: l.laptops.Name, SetID: l.laptops.ID}})
}

// toLaptop returns expressions that match packets to any laptop. They check the same bits as bourse.IsLaptopAddress.
func toLaptop() []expr.Any {
	mask, want := make([]byte, 16), make([]byte, 16)
	mask[0], mask[1], mask[14], mask[15] = 0xff, 0xff, 0xff, 0xff
	want[0], want[1], want[15] = 0xfd, 0xaa, 4
	return all(field(ip6Target, reg1),
		[]expr.Any{&expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: 16, Mask: mask, Xor: make([]byte, 16)}}, equal(want...))
}

// from returns expressions that match packets from this host's machines.
func (l *layout) from() []expr.Any {
	return all(load(expr.MetaKeyIIFNAME), lookup(l.links, false))
}

// to returns expressions that match packets to this host's machines or, if elsewhere is set, all other packets.
func (l *layout) to(elsewhere bool) []expr.Any {
	return all(load(expr.MetaKeyOIFNAME), lookup(l.links, elsewhere))
}

// all concatenates the expressions of a rule.
func all(parts ...[]expr.Any) []expr.Any { return slices.Concat(parts...) }

// load returns expressions that load a packet's metadata into register 1.
func load(key expr.MetaKey) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: reg1}}
}

// lookup returns expressions that look up a key, which starts in register 1, in the set. They match if the set contains
// the key or, if invert is set, if it does not.
func lookup(s *nftables.Set, invert bool) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: reg1, SetName: s.Name, SetID: s.ID, Invert: invert}}
}

func family(f byte) []expr.Any {
	return all(load(expr.MetaKeyNFPROTO), equal(f))
}

func equal(data ...byte) []expr.Any {
	return []expr.Any{&expr.Cmp{Op: expr.CmpOpEq, Register: reg1, Data: data}}
}

// is and differs return expressions that compare the link name in register 1 with link.
func is(link string) []expr.Any { return compare(expr.CmpOpEq, link) }

func differs(link string) []expr.Any { return compare(expr.CmpOpNeq, link) }

func compare(op expr.CmpOp, link string) []expr.Any {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, link)
	return []expr.Any{&expr.Cmp{Op: op, Register: reg1, Data: name}}
}

// place is the position of a field in a packet's network header.
type place struct{ offset, length uint32 }

var (
	ip4Source = place{12, 4}
	ip4Target = place{16, 4}
	ip6Source = place{8, 16}
	ip6Target = place{24, 16}
)

func field(p place, register uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: p.offset, Len: p.length}}
}

func within4(p netip.Prefix) []expr.Any { return matchDestination(ip4Target, p) }

func within6(p netip.Prefix) []expr.Any { return matchDestination(ip6Target, p) }

// matchDestination returns expressions that match packets to addresses in the prefix.
func matchDestination(at place, p netip.Prefix) []expr.Any {
	return all(field(at, reg1),
		[]expr.Any{&expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: at.length, Mask: maskOf(p), Xor: make([]byte, at.length)}},
		equal(p.Masked().Addr().AsSlice()...))
}

func maskOf(p netip.Prefix) []byte {
	ones := bytes.Repeat([]byte{0xff}, p.Addr().BitLen()/8)
	full, ok := netip.AddrFromSlice(ones)
	if !ok {
		return nil
	}
	return netip.PrefixFrom(full, p.Bits()).Masked().Addr().AsSlice()
}

func port(protocol byte, number uint16) []expr.Any {
	return all(load(expr.MetaKeyL4PROTO), equal(protocol),
		[]expr.Any{&expr.Payload{DestRegister: reg1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}},
		equal(binaryutil.BigEndian.PutUint16(number)...))
}

// echo returns expressions that match ping requests.
func echo(protocol, kind byte) []expr.Any {
	return all(load(expr.MetaKeyL4PROTO), equal(protocol),
		[]expr.Any{&expr.Payload{DestRegister: reg1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1}},
		equal(kind))
}

// replies returns expressions that match packets of established connections, and packets related to such connections.
func replies() []expr.Any {
	return []expr.Any{
		&expr.Ct{Register: reg1, Key: expr.CtKeySTATE},
		&expr.Bitwise{
			SourceRegister: reg1, DestRegister: reg1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED), Xor: make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg1, Data: make([]byte, 4)},
	}
}

func accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }

func drop() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}} }

// refuseChain is the name of the chain that rejects packets.
const refuseChain = "refuse"

func refuse() []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: refuseChain}}
}

// refusal returns rules that reject TCP with a reset, and everything else with "administratively prohibited". TCP
// senders would also understand "administratively prohibited". On a veth pair, however, the first such answer is lost,
// because it arrives while the sender is still sending, and the sender would not notice the rejection until a second
// later.
func refusal() [][]expr.Any {
	return [][]expr.Any{
		all(load(expr.MetaKeyL4PROTO), equal(unix.IPPROTO_TCP), []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}}),
		{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}},
	}
}

func masquerade() []expr.Any { return []expr.Any{&expr.Masq{}} }
