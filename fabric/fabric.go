// Package fabric is how servers ask workers. A [Verb] is one thing that can be
// asked: the types of its request and its reply, from which both the asking and
// the worker's handler are made; each noun has a file with its verbs. A [Fabric] carries
// requests, over any network. A worker serves one http.Handler to every fabric.
//
// Fabrics keep no state and retry nothing: what a lost answer means is for the
// market to decide.
package fabric

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
)

// Fabric carries requests to workers. Implementations are safe for concurrent
// use.
type Fabric interface {
	// Ask sends an order to many workers concurrently and calls answer, from
	// one goroutine at a time, for each quote as it comes. It returns when all
	// have answered or ctx ends; those that did not answer are simply missing.
	Ask(ctx context.Context, to []bourse.Member, order *bourse.Order, answer func(bourse.Quote))
	// Send sends one request to one worker, and returns its whole answer. The
	// worker's errors are answers; those of Send are as those of Call.
	Send(ctx context.Context, to bourse.Member, m *Message) (Answer, error)
	// Call sends one request to one worker; the request's URL has a path and
	// a query only. The reply's body streams and must be closed. An error with
	// CodeUnavailable means that the worker has not seen the request; after
	// any other error it may have. A request's body of unknown length (-1) is
	// sent while the reply comes; its end is the caller's to bring about, also
	// after the reply's. One with a header Upgrade has a connection of its own, which
	// the body of the reply is when its status is 101, and which httptrace reports.
	Call(ctx context.Context, to bourse.Member, req *http.Request) (*http.Response, error)
}
