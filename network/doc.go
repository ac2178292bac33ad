// Package network gives the machines of one host private networks: a
// namespace with a link for each machine, an address that follows from its
// id, rules that let it reach its own network and the outside and nothing
// else, and names.
//
// # What a machine has
//
//   - A network namespace of its own, so that two may listen on one port. It
//     is bound to a path below Config.Dir and outlives the daemon.
//   - eth0, one end of a veth pair; the other is on the host and is called "b"
//     and the machine's id. The host routes to it; there is no bridge.
//   - bourse.PrivateAddress, and an IPv4 address that is translated for
//     connections to the outside (IPv6 is too, where the host has it).
//   - The resolver at fdaa::3, whatever worker it is on.
//
// # Who may reach whom
//
// A machine sends from its own addresses only. It may connect to machines of
// the same private network by their private addresses, to the resolver, and
// to the outside, except for what Config.Deny names. It may ping the host and
// connect to no other service of it. What it may not is rejected at once:
// "administratively prohibited". From outside nothing connects to a machine;
// the host itself may ([Network.Dial]). All this is one nftables table for a
// worker, and a machine is a few elements of its sets. Rules of the host's
// other tables hold too: one that drops what is forwarded (Docker's does by
// default) also drops what is let through here.
//
// Without machines nothing of this is on the host, from a second after the last
// one has gone.
//
// A host with private networks forwards packets. This is a setting of the
// whole host (net.ipv4.ip_forward, net.ipv6.conf.all.forwarding), it is made
// when the first machine comes, and is not taken back.
//
// # Invariants
//
//  1. What is on the host is the record. Nothing about networks is written
//     elsewhere: a link's alias says whose it is, that all steps of Attach were
//     done, and which IPv4 address was chosen. After a crash at any step
//     Recover leaves what the caller has a record of, whole, and nothing else.
//  2. Several workers may be on one host. Each touches only what has its mark,
//     the hash of its directory.
//  3. Rules are never absent while a machine has a link: they are made before
//     it gets its addresses, taken away after the link, and replaced in one
//     transaction. If somebody flushes them they are back within a second.
//  4. A name is answered for the private network of the machine that asks, and
//     for no other. When Names fails the answer is SERVFAIL.
//
// Names, of this worker's machines: AAAA for <app>.internal, global.<app>,
// <region>.<app>, <id>.vm.<app>, <name>.vm.<app>, <group>.process.<app>, <value>.<key>.kv._metadata.<app> and
// top<n>.nearest.of.<app>; TXT for vms.<app>, regions.<app> (all.vms and
// all.regions with those that do not run), _apps and _instances. Machines are
// listed while they are started, also when cordoned (that is about the
// proxy), unless config.dns.skip_registration is set. All other names are
// asked of Config.Upstream.
//
// The package does not reach across hosts; see [Mesh].
//
// Goroutines: Run owns all of them, beside threads that enter a namespace and
// end before the call does. Locks, in order: recovery, a machine's, then one
// of mu and the firewall's; the two are never held together.
package network
