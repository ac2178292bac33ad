// Package mesh connects the private networks of different workers with WireGuard. Each worker has one end: a link, which
// the kernel's WireGuard module implements if the host has it, and otherwise a small process with wireguard-go. Both
// outlive the worker's daemon.
//
// A worker's peers are the workers that have a machine in one of the worker's own networks. [Plan] computes them from
// the view, and [Device.Apply] applies them. A peer may send exactly from the addresses of its machines in these
// networks, and from its own address in the mesh ([Address]), from which its host sends ICMP errors. WireGuard drops all
// other packets. Package network decides which of the local machines a packet may reach.
//
// A laptop is a peer of one worker, its entry. For other workers, the laptop is one more address behind its entry. The
// entry forwards the laptop's packets to them, and answers its questions about names.
//
// # What a malicious worker can do
//
// The view says which machines are in a network. Brokers have signed that, so a worker cannot place itself in a network.
//
//   - The first 24 bits of a machine's id name its worker, and a worker's tags follow from its ID. So a worker cannot
//     announce another worker's addresses, unless it was admitted under a name that shares a tag with the other worker's.
//   - Each worker signs its ID with its key ([Identity]), so a worker cannot announce another worker's key, which would
//     redirect that worker's packets.
//   - An endpoint is only a hint: whoever answers there must have the worker's key. Until there is a session, a worker can
//     make its peers send a handshake of 148 bytes every five seconds to any address that is not loopback, link-local,
//     multicast or private to a machine. In a session, WireGuard sends to the address from which the worker's last
//     packet came, which the worker can forge.
//   - The entry of a laptop can send from the laptop's address to machines of its network, and sees its packets. Brokers
//     have signed which worker that is.
//   - ICMP errors from its host's address are delivered if they refer to a connection of any machine on this host.
package mesh
