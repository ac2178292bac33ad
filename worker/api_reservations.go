package worker

import (
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

func (w *Worker) handleReservations(mux *http.ServeMux) {
	mux.HandleFunc(fabric.PathReserve, take(func(r *http.Request, c *bourse.Claim) (fabric.ClaimReply, error) {
		if c.Order.Kind() != bourse.KindHold {
			return fabric.ClaimReply{}, bourse.Errorf(bourse.CodeInvalid, "the order says nothing of a hold")
		}
		if err := c.Order.Validate(); err != nil {
			return fabric.ClaimReply{}, err
		}
		fill, refusal, err := w.reserve(r.Context(), c)
		return fabric.ClaimReply{Fill: fill, Refusal: refusal}, err
	}))
	mux.HandleFunc(fabric.PathReservation, reply(func(r *http.Request) ([]bourse.Hold, error) {
		return w.holdsOf(r.Context(), reservationKey(r))
	}))
	mux.HandleFunc(fabric.PathExtendHolds, take(func(r *http.Request, e *fabric.ExtendHolds) ([]bourse.Hold, error) {
		return w.extend(r.Context(), reservationKey(r), time.Duration(e.TTL))
	}))
	mux.HandleFunc(fabric.PathReleaseHolds, reply(func(r *http.Request) (struct{}, error) {
		return struct{}{}, w.releaseHolds(r.Context(), reservationKey(r))
	}))
}

func reservationKey(r *http.Request) bourse.ReservationKey {
	return bourse.ReservationKey(r.PathValue("reservation"))
}
