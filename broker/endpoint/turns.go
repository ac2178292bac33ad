package endpoint

import (
	"net/http"
	"time"
)

// The time for which an order may delay others. Whatever takes longer does not wait for
// servers, but for an image pull or a running program.
const (
	MachineLease = 250 * time.Millisecond
	TaskLease    = 25 * time.Millisecond
)

// Ordering makes an endpoint that places orders wait for its turn before it reads the
// request. If too many orders are in progress, the request is refused: an order accepted
// without the resources to decide it would be refused for lack of capacity even if there
// were some. Errors: rate_limited.
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
