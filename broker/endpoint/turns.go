package endpoint

import (
	"net/http"
	"time"
)

// These constants limit how long an order keeps its turn. An order that takes longer is usually waiting for an image
// pull or for its program to start or answer, which puts no load on the servers.
const (
	MachineLease = 250 * time.Millisecond
	TaskLease    = 25 * time.Millisecond
)

// Ordering returns a handler for an endpoint that places orders. The handler waits for its turn before it reads the
// request. It refuses the request if too many orders are in progress, because an overloaded broker might not fill
// orders in time, and would then wrongly report a lack of capacity. Errors: rate_limited.
func (g *Gate) Ordering(lease time.Duration, serve Handler) Handler {
	return func(w http.ResponseWriter, r *Request) error {
		if err := g.Quota.MayOrder(r.App(), r.Who.Org); err != nil {
			return err
		}
		turn, err := g.Turns.Take(r.Context(), lease)
		if err != nil {
			return err
		}
		defer turn.Done()
		return serve(w, r)
	}
}
