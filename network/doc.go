// Package network implements private networks for the machines of one host. Each machine has a
// namespace with a link, an address derived from its id, and firewall rules that give it access
// only to its own network and the outside. A resolver answers queries for the names of machines.
//
// # What a machine gets
//
//   - Its own network namespace, so that two machines may listen on one port. The
//     namespace is bound to a path below Config.Dir and outlives the daemon.
//   - eth0, one end of a veth pair. The other end is on the host, and its name is
//     "b" followed by the machine's id. The host routes to it; there is no bridge.
//   - bourse.PrivateAddress, and an IPv4 address that is translated for
//     connections to the outside (as is the IPv6 address, if the host has IPv6).
//   - The resolver at fdaa::3, on every worker.
//
// # Access rules
//
// A machine sends only from its own addresses. It may connect to machines of the same private network by their
// private addresses, on this host and on those of [Network.SetRemotes], to the resolver, and to the outside, except for the addresses in Config.Deny. It may ping the
// host but not connect to any of its other services. Everything else is rejected at once: TCP with
// a reset, all other packets as "administratively prohibited". Nothing outside can connect to a machine; the host
// itself can ([Network.Dial]). Each worker has these rules in one nftables table, in which each machine is represented
// by a few elements of the sets. Rules in the host's other tables apply, too: a rule that drops forwarded packets (as
// Docker's does by default) also drops packets accepted here.
//
// The table and the resolver's address are removed from the host within a second after the last machine is gone.
//
// A host with private networks forwards packets. Forwarding is a setting of the whole host
// (net.ipv4.ip_forward, net.ipv6.conf.all.forwarding). It is enabled for the first machine and
// never disabled.
//
// # Invariants
//
//  1. The host's state is the only record. Nothing about networks is stored
//     elsewhere: a link's alias contains its owner, whether all steps of Attach
//     are done, and the chosen IPv4 address. After a crash at any step, Recover
//     completes the networks of the machines that the caller lists, and removes
//     everything else.
//  2. Several workers may share a host. Each changes only objects with its mark,
//     the hash of its directory.
//  3. Rules exist as long as a machine has a link: they are created before it
//     gets its addresses, removed after the link, and replaced in one
//     transaction. If another program flushes them, they are restored within a second.
//  4. The resolver answers only names in the private network of the asking machine or laptop.
//     If Names fails, the answer is SERVFAIL.
//
// The resolver answers AAAA queries for <app>.internal, global.<app>, <region>.<app>, <id>.vm.<app>, <name>.vm.<app>,
// <group>.process.<app>, <value>.<key>.kv._metadata.<app> and top<n>.nearest.of.<app>, and TXT queries for vms.<app>,
// regions.<app> (all.vms and all.regions include machines that do not run), _apps and _instances. The answers contain
// the machines that [Names] returns: this worker's, and those of other workers that can be reached. Machines are listed while they are started, even if cordoned (which concerns only the
// proxy), unless config.dns.skip_registration is set. Names outside .internal are forwarded to Config.Upstream,
// except for the reverse names of private addresses.
//
// Package network/mesh connects hosts. It delivers packets through the link Config.Mesh, and guarantees that a packet from
// this link was sent by the worker of its source address. The rules here admit it only to machines in the network of
// that address, never to the host, and packets from such an address only from this link. ICMP errors of the other host
// are admitted if they belong to a connection. Laptops, which are peers of the mesh as well, may connect to machines of
// their network, but nothing may connect to them. A laptop that is connected to this worker also has access to the resolver.
//
// Run owns all goroutines, except those whose threads enter a namespace and end before the call returns. Locks are
// taken in this order: recovery, a machine's, then either mu or the firewall's, but not both.
package network
