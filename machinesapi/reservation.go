package machinesapi

import (
	"time"

	"github.com/bourse-dev/bourse"
)

// CreateReservation is the body of a request to reserve capacity for all of its orders or for none.
type CreateReservation struct {
	// ID is a ULID that the client has chosen. A repeated request with the same ID returns the
	// existing reservation. The default is a new ID.
	ID bourse.ReservationKey `json:"id,omitempty"`
	// Orders must not request more than bourse.MaxReservedOrders machines in total.
	Orders     []ReserveOrder  `json:"orders"`
	TTLSeconds *int64          `json:"ttl_seconds,omitempty"` // 1 to 3600; default 60
	Deadline   bourse.Duration `json:"deadline,omitempty"`    // time limit for the whole request; default 10 s, at most half of the TTL
}

// ReserveOrder requests capacity for one or more machines with the same config.
type ReserveOrder struct {
	App    bourse.AppName `json:"app,omitempty"`    // app whose machines may use the capacity; default "default"
	Region string         `json:"region,omitempty"` // a region expression; default "any"
	// Config may contain the guest, requirements and rootfs, but no mounts. If it contains an image,
	// workers that cannot run the image are excluded.
	Config *bourse.Config `json:"config,omitempty"`
	Count  *int64         `json:"count,omitempty"` // number of machines; default 1
}

// ExtendReservation is the body of a request to extend a reservation.
type ExtendReservation struct {
	TTLSeconds *int64 `json:"ttl_seconds"` // from now; 1 to 3600; required
}

// Reservation is capacity that one or several workers hold.
type Reservation struct {
	ID          bourse.ReservationID `json:"id"`
	ExpiresAt   time.Time            `json:"expires_at"`     // when the first hold expires
	Holds       []Hold               `json:"holds"`          // in the order of the request
	LostWorkers []string             `json:"gone,omitempty"` // workers that no longer have their holds
}

// Hold is capacity that one worker holds for one order of a reservation.
type Hold struct {
	// ID identifies the part of the reservation on this worker. To create a machine there, use the ID as the
	// reservation of the machine's order.
	ID        bourse.ReservationID `json:"id"`
	Order     int                  `json:"order"`    // index of the order in the request
	OrderID   bourse.OrderID       `json:"order_id"` // ID of the order; the decision is at /v1/orders/{order_id}
	App       bourse.AppName       `json:"app"`
	Worker    bourse.WorkerID      `json:"worker"`
	Region    bourse.Region        `json:"region"`
	Takes     bourse.Amounts       `json:"takes"`     // originally reserved amounts
	Remaining bourse.Amounts       `json:"remaining"` // amounts that machines have not used yet
	ExpiresAt time.Time            `json:"expires_at"`
}

// FromHolds converts a reservation's holds. There must be at least one.
func FromHolds(id bourse.ReservationID, holds []bourse.Hold) Reservation {
	out := Reservation{ID: id, ExpiresAt: holds[0].ExpiresAt, Holds: make([]Hold, len(holds))}
	for i := range holds {
		h := &holds[i]
		out.Holds[i] = Hold{
			ID: h.Reservation.At([]bourse.WorkerTag{h.Tag}), Order: h.Index, OrderID: h.Order, App: h.App, Worker: h.Worker, Region: h.Region,
			Takes: h.Takes, Remaining: append(bourse.Amounts{}, h.Remaining...), ExpiresAt: h.ExpiresAt.UTC(),
		}
		if h.ExpiresAt.Before(out.ExpiresAt) {
			out.ExpiresAt = h.ExpiresAt
		}
	}
	out.ExpiresAt = out.ExpiresAt.UTC()
	return out
}
