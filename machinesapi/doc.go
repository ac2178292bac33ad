// Package machinesapi is the public API on the wire: the bodies of the
// Machines API with what Bourse adds to it, pure conversions from the words of
// package bourse, and a Go [Client].
//
// Bodies keep to what existing Machines API clients read: durations are Go
// strings, event times are milliseconds, a machine's own times are RFC 3339
// with seconds. What Bourse adds are further fields and headers, so that those
// clients never see them. There is no server code here.
package machinesapi

// Headers of requests and replies.
const (
	// HeaderNonce carries the nonce of a machine's lease.
	HeaderNonce = "fly-machine-lease-nonce"
	// HeaderRequestID names a request, in every reply and in the server's log.
	HeaderRequestID = "fly-request-id"
	// HeaderOrderID names an order: chosen by the client in a request, returned by
	// the server in the reply.
	HeaderOrderID = "Bourse-Order-Id"
	// HeaderServerTiming is how long the parts of an order took, in milliseconds.
	HeaderServerTiming = "Server-Timing"
	// HeaderUnreachable lists the workers that a listing could not ask.
	HeaderUnreachable = "Bourse-Unreachable"
	// HeaderWarning is a member of the request that is not acted on, and why; one
	// for each.
	HeaderWarning = "Bourse-Warning"
)

// MaxBody bounds the body of every request, in bytes.
const MaxBody = 4 << 20

// TypeLines is the content type of log streams: one JSON value a line.
const TypeLines = "application/x-ndjson"

// OK is the body of a verb that has nothing else to return.
type OK struct {
	OK bool `json:"ok"`
}
