// Package network implements private networks for the machines of one host. Each machine has a namespace with a link,
// an address derived from its id, and firewall rules that give it access only to its own network and to the outside. A
// resolver answers DNS queries for machine names.
//
// # What a machine gets
//
//   - Its own network namespace, so that two machines can listen on the same port. The namespace is bound to a path
//     below Config.Dir and outlives the daemon.
//   - eth0, one end of a veth pair. The other end is on the host, and its name is
//     "b" followed by the machine's id. The host routes to it; there is no bridge.
//   - Its private IPv6 address (bourse.PrivateAddress) and an IPv4 address. Both are masqueraded for connections to the
//     outside, the IPv6 address only if the host has IPv6.
//   - The resolver at fdaa::3, on every worker.
//
// # Access rules
//
// A machine can send packets only from its own addresses. It may connect to the private addresses of machines in the
// same private network, both those on this host and those listed by [Network.SetRemotes]. It may also connect to the
// resolver, and to all outside addresses except those in Config.Deny. It may ping the host, but not connect to any of
// the host's other services. Everything else is rejected immediately: TCP with a reset, all other packets as
// "administratively prohibited". Nothing on the outside can connect to a machine, except the host itself
// ([Network.Dial]). Each worker has one nftables table with these rules, in which a few set elements represent each
// machine. The rules in the host's other tables also apply: a rule that drops forwarded packets (as Docker's does by
// default) also drops packets that this table accepts.
//
// The table and the resolver's address are removed from the host within a second after the last machine was removed,
// unless a laptop is connected to this worker.
//
// A host with private networks forwards packets. Forwarding is a setting for the whole host (net.ipv4.ip_forward,
// net.ipv6.conf.all.forwarding). It is enabled when the first machine is attached or [Network.AdmitPeers] is called,
// and never disabled.
//
// # Invariants
//
//  1. The host's state is the only record. Nothing about networks is stored elsewhere: a link's alias contains its
//     owner, whether all steps of Attach are done, and the chosen IPv4 address. After a crash at any step, Recover
//     completes the networks of the listed machines, and removes everything else.
//  2. Several workers may share a host. Each one changes only objects that carry its mark, a hash of its directory.
//  3. As long as a machine has a link, its rules exist: they are created before the machine gets its addresses, removed
//     after the link, and replaced in one transaction. If another program flushes them, they are restored within a
//     second.
//  4. To a machine or laptop, the only .internal names that exist are those in its own private network. If Names fails,
//     the answer is SERVFAIL.
//
// The resolver answers AAAA queries for <app>.internal, global.<app>, <region>.<app>, <id>.vm.<app>, <name>.vm.<app>,
// <group>.process.<app>, <value>.<key>.kv._metadata.<app> and top<n>.nearest.of.<app>, and TXT queries for vms.<app>,
// regions.<app> (all.vms and all.regions include machines that are not running), _apps and _instances. The answers
// contain the machines that [Names] returns: this worker's, and those of other workers that can be reached. Started
// machines are listed even if they are cordoned (which affects only the proxy), unless config.dns.skip_registration is
// set. Names outside .internal are forwarded to Config.Upstream, except for the reverse names of private addresses.
//
// Package network/mesh connects hosts. It delivers packets through the link Config.Mesh, and guarantees that a packet
// from this link was sent by the worker to which its source address belongs. The rules in this package admit such a
// packet only to machines in the source address's network, never to the host. They drop packets that have such a source
// address but arrive through another link. The other host's ICMP errors are admitted if they belong to a connection.
// Laptops, which are also peers in the mesh, may connect to machines in their network, but nothing may connect to them.
// A laptop that is connected to this worker also has access to the resolver.
//
// Run owns all goroutines, except those that enter a namespace on their own thread. Such a goroutine exits before the
// call that started it returns. Locks are acquired in this order: recovery, then a machine's lock, then either mu or
// the firewall's lock, but not both.
package network
