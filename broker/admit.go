package broker

import (
	"net/http"
	"time"
)

// How long an order may keep others from beginning. What takes longer waits for
// something else than servers: an image that is pulled, a program that works.
const (
	machineLease = 250 * time.Millisecond
	taskLease    = 25 * time.Millisecond
)

// ordering has an endpoint that places orders wait for its turn before it reads
// its request. Who comes when too many are in progress is refused: an order that
// is taken without the means to decide it would be told that there is no
// capacity where there is. Codes: rate_limited.
func ordering(lease time.Duration, serve func(*Broker, http.ResponseWriter, *request) error) func(*Broker, http.ResponseWriter, *request) error {
	return func(b *Broker, w http.ResponseWriter, r *request) error {
		if err := b.mayOrder(r); err != nil {
			return err
		}
		turn, err := b.turns.Take(r.Context(), lease)
		if err != nil {
			return err
		}
		defer turn.Done()
		return serve(b, w, r)
	}
}
