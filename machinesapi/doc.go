// Package machinesapi defines the public API on the wire: the bodies of the Machines API with Bourse's additions,
// conversions from the types of package bourse, and a Go [Client].
//
// Bodies use the formats that existing Machines API clients expect: durations are Go strings, event times are
// milliseconds, and a machine's times are RFC 3339 with seconds. Bourse's additions are separate fields and headers,
// which those clients ignore. This package contains no server code.
package machinesapi

// Headers of requests and replies.
const (
	// HeaderNonce contains the nonce of a machine's lease.
	HeaderNonce = "fly-machine-lease-nonce"
	// HeaderRequestID identifies a request, in every reply and in the server's log.
	HeaderRequestID = "fly-request-id"
	// HeaderOrderID identifies an order: the client may choose an ID in a request, and the server returns it in the
	// reply.
	HeaderOrderID = "Bourse-Order-Id"
	// HeaderServerTiming contains the durations of the parts of an order, in milliseconds.
	HeaderServerTiming = "Server-Timing"
	// HeaderUnreachable lists the workers that did not answer a request for a list.
	HeaderUnreachable = "Bourse-Unreachable"
	// HeaderWarning contains an ignored field of the request with the reason. There is one header per field.
	HeaderWarning = "Bourse-Warning"
)

// MaxBody limits the body of every request, in bytes.
const MaxBody = 4 << 20

// TypeLines is the content type of streams: one JSON value per line.
const TypeLines = "application/x-ndjson"

// OK is the body of replies without other content.
type OK struct {
	OK bool `json:"ok"`
}
