// Package fabric sends requests to workers. A [Verb] is an operation that workers offer, with its request and reply
// types. The Verb type implements both the client's call and the worker's handler. There is one file of verbs for each
// kind of object. A [Fabric] transports requests over some network. A worker serves the same http.Handler on every
// fabric.
//
// If the answer to a request that changes something is lost, a Fabric does not repeat the request, because the market
// has to decide how to handle the loss.
package fabric

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
)

// Fabric transports requests to workers. Implementations are safe for concurrent use.
type Fabric interface {
	// Ask sends an order to many workers concurrently and calls answer for each quote as it arrives.
	// Calls to answer never overlap. Ask returns when all workers have answered or ctx is done. It
	// does not report which workers have not answered.
	Ask(ctx context.Context, to []bourse.Member, order *bourse.Order, answer func(bourse.Quote))
	// Send sends one request to one worker and returns the worker's complete answer, even if that answer reports an
	// error. Send itself returns the same errors as Call.
	Send(ctx context.Context, to bourse.Member, m *Message) (Answer, error)
	// Call sends one request to one worker. The request's URL contains only a path and a query. The reply's body is a
	// stream and must be closed. An error with CodeUnavailable means that the worker has not received the request;
	// after any other error, the worker may have received it. A request body of unknown length (-1) is sent while the
	// reply is received; the caller must close the body even if the reply ends first. A request with an Upgrade header
	// gets its own connection. If the status is 101, the reply's body is that connection, and httptrace's GotConn hook
	// also receives it.
	Call(ctx context.Context, to bourse.Member, req *http.Request) (*http.Response, error)
}
