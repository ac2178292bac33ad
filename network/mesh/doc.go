// Package mesh connects the private networks of different workers with WireGuard. Each worker has one end: a link,
// which is implemented by the kernel's WireGuard module or, if the host lacks that module, by a small process that runs
// wireguard-go. The link and this process outlive the worker's daemon.
//
// A worker's peers are the workers that have a machine, or a laptop that connects through them, in one of the worker's
// own networks. [Plan] computes them from the view, and [Device.Apply] configures them. A peer may send only from the
// addresses of its machines in these networks, and from its own address in the mesh ([Address]), which its host uses to
// send ICMP errors. WireGuard drops all other packets. Package network decides which local machines a packet may reach.
//
// A laptop is a peer of one worker, its entry. To other workers, the laptop is just another address behind its entry.
// The entry forwards the laptop's packets to other workers, and answers the laptop's DNS queries.
//
// # What a malicious worker can do
//
// The view contains each network's machines. Brokers sign this data, so a worker cannot add itself to a network.
//
//   - The first 24 bits of a machine's id are its worker's tag, and a worker's possible tags are derived from its ID.
//     Therefore, a worker cannot announce another worker's addresses, unless it was admitted under an ID that shares a
//     tag with the other worker's ID.
//   - Each worker signs its ID with its key ([Identity]). Therefore, a worker cannot announce another worker's key to
//     redirect that worker's packets.
//   - An endpoint is only a hint: the host at that address must have the worker's key. Until a session is established,
//     a worker can make its peers send a 148-byte handshake every five seconds to any address that is not loopback,
//     link-local, multicast or a machine's. In a session, WireGuard sends packets to the source address of the worker's
//     last packet, which the worker can forge.
//   - A laptop's entry sees the laptop's packets, and can send packets from the laptop's address to machines in the
//     laptop's network. The entry's ID is part of the data that brokers sign.
//   - ICMP errors from a worker's address in the mesh are delivered if they refer to any connection of a machine on
//     this host.
package mesh
