package endpoint

import (
	"net/http"
	"time"
)

// How long an order may keep others from beginning. What takes longer waits for
// something else than servers: an image that is pulled, a program that works.
const (
	MachineLease = 250 * time.Millisecond
	TaskLease    = 25 * time.Millisecond
)

// Ordering has an endpoint that places orders wait for its turn before it reads
// its request. A request that comes when too many are in progress is refused: an order that
// is taken without the means to decide it would be refused for want of
// capacity where there is some. Codes: rate_limited.
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
