package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
)

// For the spread of a reservation's holds, its existing holds on this worker count like
// machines of the app.
func TestHoldsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		key := bourse.NewReservationKey()
		says := func(what string, key bourse.ReservationKey, want int) {
			t.Helper()
			if q, err := h.quote(t.Context(), newHoldOrder(t, key, 9, time.Minute)); err != nil || q.AppMachines != want {
				t.Errorf("%s: %d machines of the app, %v; want %d", what, q.AppMachines, err, want)
			}
		}
		says("before", key, 0)
		hold := h.hold(newHoldOrder(t, key, 0, time.Minute))
		h.hold(newHoldOrder(t, key, 1, time.Minute))
		says("the third", key, 2)
		says("another reservation's first", bourse.NewReservationKey(), 0)
		h.place(mem(64), fromHold(hold))
		says("with a machine that uses a hold", key, 2)
		time.Sleep(2 * time.Minute)
		says("after its end", key, 1)
	})
}
