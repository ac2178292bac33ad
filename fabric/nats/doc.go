// Package nats is a network for clusters whose servers can dial out but cannot be dialed. Each server has one
// connection to a NATS server, cluster or supercluster, through which the other servers reach it. The package uses only
// core NATS, which stores nothing.
//
// A [Link] connects a server to this network. It has an address that looks like an IP address and port but represents a
// subject (see [Address]). Code that uses addresses, such as the membership and the fabric, therefore does not depend
// on NATS. A link transports
//
//   - connections, [Link.Dial] and [Link.Listen]: a net.Conn of ordered frames
//     with flow control. HTTP, TLS and the membership's streams use it like TCP,
//     so streams, half-closed connections, broken connections and backpressure
//     behave the same on both networks.
//   - packets of the membership's gossip: see [Transport].
//   - orders, [Fabric.Ask]: one message to a region's subject, or one to each
//     worker in a sample. Quotes are sent to the asker's subject.
//
// # Subjects
//
// All subjects of a cluster begin with the same prefix, which is followed by:
//
//	at.<address>.dial.<port>   a request for a connection
//	at.<address>.c.<conn>      frames of a connection
//	at.<address>.packet        a packet of the membership
//	at.<address>.ask           an order, to this worker alone
//	at.<address>.quote.<n>.*   quotes for the n-th order that this server has sent
//	at.<address>.ping          a ping
//	region.<region>.orders     orders, to every worker of a region
//	join                       a request for the address of any member
//
// A server gets a new address at each start. Addresses are never reused. An outdated address has no subscriber; NATS
// reports this immediately, and the sender gets an error.
//
// # Lost messages
//
// NATS delivers at most once. Frames are numbered. If one is missing, the connection is reset. It is also reset if
// either end loses its NATS server, if the other end is gone (no responders, or no message from it for
// Config.PeerTimeout), or if this process is too slow to receive messages. The outcome of calls on the connection is
// then unknown; the market handles this case. This package never resends a message.
package nats
