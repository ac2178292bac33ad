// Package direct is the fabric of HTTP: a request goes straight to the
// worker's address, over HTTP/1.1 in the clear or, with TLS, over HTTP/2 with
// certificates on both ends. A request whose body goes on while its reply does
// has a connection of HTTP/1.1 for itself.
//
// Acts and quotes are calls (internal/mux) on one connection to each worker,
// which began as a request for that and belongs to the worker that answered it.
// The guarantees are those of requests: a call of which nothing was written was
// not sent, the answer of any other is lost when the connection breaks, the
// worker is notified of a caller that leaves, and the handler sees a request with
// the TLS state of the connection. What is too large for a call, streams or only
// asks is a request.
//
// It never connects to the wrong worker. With TLS the server's certificate must
// name the worker (see admission.Identity), and connections are kept by that
// name and the address. In the clear each request carries the worker's id and
// [Handler] answers only to its own; so if another server gets the address nothing
// happens there.
//
// What is sent twice: a request of which not one byte was written to a kept
// connection that turned out to be closed. Nothing else, reads excepted.
//
// # Goroutines and locks
//
// A [Fabric] has one goroutine for each connection of calls: it makes it, then
// reads. Close ends them all. conns.mu is taken before a connection's own lock,
// and not held while something is read or written.
package direct
