// Package direct is the fabric of HTTP: a request goes straight to the
// worker's address, over HTTP/1.1 in the clear or, with TLS, over HTTP/2 with
// certificates on both ends. A request whose body goes on while its reply does
// has a connection of HTTP/1.1 for itself.
//
// Small acts and quotes are calls: messages, in frames, on one connection to
// each worker, which began as a request for that and belongs to the worker that
// answered it. The guarantees are those of requests: a frame
// of which nothing was written was not sent, the answer of any other is lost when
// the connection breaks, a caller that leaves sends that, and the handler sees a
// request with the TLS state of the connection. A worker that takes no calls
// receives requests.
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
// reads. A goroutine that has something to write does it; one more exists while
// a worker does not read. Close ends them all. [Serve] has a crew, of which one
// at a time reads a connection, and waits for them.
//
// Locks: lines.mu and line.mu, desk.mu and inbound.mu are never held together,
// nor while something is read or written; nowait.mu is the innermost, held for one write that
// does not wait.
package direct
