// Package fabric is how brokers reach workers. A [Fabric] carries HTTP
// requests, over any network; [Client] is the worker's API on top of one,
// in the types of package bourse. A worker serves one http.Handler to every
// fabric, so both ends share the paths and bodies in wire.go.
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
	// Call sends one request to one worker; the request's URL has a path and
	// a query only. The reply's body streams and must be closed. An error with
	// CodeUnavailable means that the worker has not seen the request; after
	// any other error it may have. A request's body of unknown length (-1) is
	// sent while the reply comes; its end is the caller's to bring about, also
	// after the reply's.
	Call(ctx context.Context, to bourse.Member, req *http.Request) (*http.Response, error)
}
