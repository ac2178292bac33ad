// Package nats is the network of a cluster whose servers can dial out but need
// not be dialed: each holds one connection to a NATS server, cluster or
// supercluster, and is reached through it. Core NATS only: nothing is stored
// there.
//
// A [Link] is a server's place on that network. It has an address that looks
// like one of IP, host and port, but means a subject (see [Address]); so the code that
// uses addresses, the membership and the fabric, does not depend on
// NATS. Over a link go
//
//   - connections, [Link.Dial] and [Link.Listen]: a net.Conn of ordered frames
//     with flow control, under which HTTP, TLS and the membership's streams
//     run as they do over TCP. So streams, half-closed ends, breaks and
//     backpressure mean the same on either network.
//   - packets, of the membership's gossip: see [Transport].
//   - orders, [Fabric.Ask]: one message to a region's subject, or to the
//     subjects of a sample, answered by quotes to the asker's own.
//
// # Subjects
//
// Below a prefix, the cluster's own:
//
//	at.<address>.dial.<port>   a request for a connection
//	at.<address>.c.<conn>      frames of a connection
//	at.<address>.packet        a packet of the membership
//	at.<address>.ask           an order, to this worker alone
//	at.<address>.quote.<n>.*   answers to the n-th order that this server asks about
//	at.<address>.ping          request for a sign of life
//	region.<region>.orders     orders, to every worker of a region
//	join                       answered by some member: its address
//
// An address is new with each start of a server. No other can have it, and
// one that is out of date has no subscriber: NATS reports that at once, and so do
// we.
//
// # What is lost
//
// NATS delivers at most once. Frames are numbered: where one is missing the
// connection is reset, as it is when either end loses its NATS server, when
// the other end is gone (no responders, or no sign of life for [goneAfter]),
// or when this process was too slow to take messages. Above it all of that is an
// outcome that is unknown, which the market handles. Nothing is repeated here.
package nats
