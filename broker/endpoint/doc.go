// Package endpoint implements the path of every request of the public API to its
// handler and back. It assigns a request id, identifies the caller and what the caller
// may do, makes orders wait for their turn, decodes the body, and writes and logs the
// reply or error. It also counts all of this for the broker's metrics.
package endpoint
