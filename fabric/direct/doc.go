// Package direct implements a fabric over HTTP. Requests go directly to the worker's address, over plain HTTP/1.1 or,
// with TLS, over HTTP/2 with certificates on both ends. A request whose body is sent while its reply is received uses
// its own HTTP/1.1 connection.
//
// Requests for quotes, and verbs that change something, are sent as calls (internal/mux) on one connection to each
// worker. The connection begins with an upgrade request. Calls have the same guarantees as requests: a call counts as
// not sent if none of its bytes were written. If the connection breaks, the answers to all calls in progress are lost.
// When a caller cancels a call, the worker is notified. Handlers receive ordinary requests with the connection's TLS
// state. Streams, verbs that only read, and calls that are too large are sent as separate requests.
//
// A request never reaches the wrong worker. With TLS, the server's certificate must name the worker (see
// admission.Identity), and connections are pooled by that name and the address. Without TLS, each request contains the
// worker's ID and [Handler] responds only to its own ID, so a request has no effect on another server that has taken
// over the address.
//
// A request is sent again only if a reused connection turned out to be closed before any of the
// request's bytes were written. A request that only reads may also be sent again after some of its
// bytes were written.
//
// # Goroutines and locks
//
// A [Fabric] has one goroutine per connection for calls, which opens the connection and then reads
// from it. Close ends these goroutines. conns.mu is acquired before a connection's own lock,
// and is not held across I/O.
package direct
