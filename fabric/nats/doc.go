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
//   - calls, [Fabric.Send]: a small act, above all a claim, as one message to
//     the worker's subject, answered whole to the caller's own.
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
//	at.<address>.answer.<n>    what becomes of this server's n-th call: parts, in order, or a break
//	at.<address>.roll          calls of this server that a worker takes to be in progress
//	call.<address>             calls to a worker, callers that leave, and a caller's roll
//	region.<region>.orders     orders, to every worker of a region
//	join                       answered by some member: its address
//
// An address is new with each start of a server. No other can have it, and
// one that is out of date has no subscriber: NATS reports that at once, and so do
// we.
//
// # Calls
//
// A call has a number that its caller never uses again. Its answer may have
// several parts; one missing means that it is lost. A caller whose context ends
// sends that, and the handler's context ends. That no one takes calls at an
// address, an older worker for one, is NATS's own answer: then nothing was
// sent, and the fabric uses a connection. Every third of the patience both
// ends compare the calls between them that have been in progress for a while: those
// that the other does not know were lost on the way. A peer that is gone or
// silent ends the calls with it as it does connections.
//
// The messages of calls leave from one goroutine, in order: see outbox. A
// worker serves calls on goroutines that are kept, and refuses those that
// are too many.
//
// # What is lost
//
// NATS delivers at most once. Frames are numbered: where one is missing the
// connection is reset, as it is when either end loses its NATS server, when
// the other end is gone (no responders, or no sign of life for [goneAfter]),
// or when this process was too slow to take messages; a call's answer is lost
// then. Above it all of that is an outcome that is unknown, which the market
// handles. Nothing is repeated here.
package nats
