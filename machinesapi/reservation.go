package machinesapi

import (
	"time"

	"github.com/bourse-dev/bourse"
)

// CreateReservation is the body of a request to hold capacity: for all of its
// orders or for none.
type CreateReservation struct {
	ID         bourse.ReservationKey `json:"id,omitempty"`          // a ULID: a repetition finds what is held; default made up
	Orders     []ReserveOrder        `json:"orders"`                // with their counts at most bourse.MaxReservedOrders
	TTLSeconds *int64                `json:"ttl_seconds,omitempty"` // 1 to 3600; default 60
	Deadline   bourse.Duration       `json:"deadline,omitempty"`    // for the whole; default 10 s, at most half of the ttl
}

// ReserveOrder is what is to be held: as much as such machines would take.
type ReserveOrder struct {
	App    bourse.AppName `json:"app,omitempty"`    // whose machines may take it; default "default"
	Region string         `json:"region,omitempty"` // an expression; default "any"
	Config *bourse.Config `json:"config,omitempty"` // guest, requirements, rootfs and, if it matters, image; no mounts
	Count  *int64         `json:"count,omitempty"`  // so many of them; default 1
}

// ExtendReservation makes a reservation end so long from now.
type ExtendReservation struct {
	TTLSeconds *int64 `json:"ttl_seconds"` // required; 1 to 3600
}

// Reservation is capacity that is held on one or several workers.
type Reservation struct {
	ID        bourse.ReservationID `json:"id"`
	ExpiresAt time.Time            `json:"expires_at"`     // of the hold that ends first
	Holds     []Hold               `json:"holds"`          // in the order of the request
	Gone      []string             `json:"gone,omitempty"` // workers that hold nothing for it any more
}

// Hold is what one worker holds for one order.
type Hold struct {
	ID        bourse.ReservationID `json:"id"`       // the reservation on this worker alone: a machine that names it is made there
	Order     int                  `json:"order"`    // its index in the request
	OrderID   bourse.OrderID       `json:"order_id"` // how it was decided is at /v1/orders/{order_id}
	App       bourse.AppName       `json:"app"`
	Worker    bourse.WorkerID      `json:"worker"`
	Region    bourse.Region        `json:"region"`
	Takes     bourse.Amounts       `json:"takes"` // held at first
	Left      bourse.Amounts       `json:"left"`  // of that: machines have taken the rest
	ExpiresAt time.Time            `json:"expires_at"`
}

// FromHolds converts a reservation, made of what its workers hold; there is at
// least one.
func FromHolds(id bourse.ReservationID, holds []bourse.Hold) Reservation {
	out := Reservation{ID: id, ExpiresAt: holds[0].ExpiresAt, Holds: make([]Hold, len(holds))}
	for i := range holds {
		h := &holds[i]
		out.Holds[i] = Hold{
			ID: h.Reservation.At([]bourse.WorkerTag{h.Tag}), Order: h.Index, OrderID: h.Order, App: h.App, Worker: h.Worker, Region: h.Region,
			Takes: h.Takes, Left: append(bourse.Amounts{}, h.Left...), ExpiresAt: h.ExpiresAt.UTC(),
		}
		if h.ExpiresAt.Before(out.ExpiresAt) {
			out.ExpiresAt = h.ExpiresAt
		}
	}
	out.ExpiresAt = out.ExpiresAt.UTC()
	return out
}
