// Package direct is a fabric that uses HTTP. Requests go directly to the worker's address,
// over plain HTTP/1.1 or, with TLS, over HTTP/2 with certificates on both ends. A request
// whose body is sent while its reply is received has its own HTTP/1.1 connection.
//
// Verbs that change something and quotes are calls (internal/mux) on one connection to each
// worker. The connection begins with an upgrade request. Calls have the same guarantees as
// requests: a call of which nothing was written was not sent; if the connection breaks, the
// answers of all other calls are lost; the worker is notified when a caller cancels a call;
// and the handler sees a request with the TLS state of the connection. Calls that are too
// large, streams, and verbs that only read are separate requests.
//
// A request never reaches the wrong worker. With TLS, the server's certificate must name
// the worker (see admission.Identity), and connections are pooled by that name and the
// address. Without TLS, each request contains the worker's id and [Handler] responds only
// to its own id, so a request has no effect on another server that has taken over the
// address.
//
// Only a request of which not a single byte was written, because a reused connection turned
// out to be closed, is sent again. Reads are an exception.
//
// # Goroutines and locks
//
// A [Fabric] has one goroutine for each connection of calls. It opens the connection and
// then reads from it. Close ends all of them. conns.mu is acquired before a connection's
// own lock and not held across I/O.
package direct
