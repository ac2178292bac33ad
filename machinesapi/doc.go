// Package machinesapi defines the public API. It contains the request and reply bodies of the
// Machines API with Bourse's additions, conversions from the types of package bourse, and a Go
// [Client].
//
// Bodies use the formats that existing Machines API clients expect: durations are Go strings, event times are
// milliseconds, and a machine's times are RFC 3339 with seconds. Bourse's additions are separate fields and headers,
// which those clients ignore. This package contains no server code.
package machinesapi

// Headers of requests and replies.
const (
	// HeaderNonce contains the nonce of a machine's lease.
	HeaderNonce = "fly-machine-lease-nonce"
	// HeaderRequestID contains the request's ID, which also appears in the server's log. Every reply has this header.
	HeaderRequestID = "fly-request-id"
	// HeaderOrderID contains an order's ID. A client may choose the ID in its request; the server returns it in the
	// reply.
	HeaderOrderID = "Bourse-Order-Id"
	// HeaderServerTiming contains the duration of each step of an order, in milliseconds.
	HeaderServerTiming = "Server-Timing"
	// HeaderUnreachable lists the workers that did not answer. If it is set, the reply may be incomplete.
	HeaderUnreachable = "Bourse-Unreachable"
	// HeaderWarning contains the name of an ignored field and the reason why it is ignored. There is one such header
	// for each ignored field.
	HeaderWarning = "Bourse-Warning"
)

// MaxBody is the maximum size of a request's body, in bytes.
const MaxBody = 4 << 20

// TypeLines is the content type of a stream in which each line is a JSON value.
const TypeLines = "application/x-ndjson"

// OK is the body of a reply without data.
type OK struct {
	OK bool `json:"ok"`
}
