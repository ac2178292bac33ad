package fabric

import (
	"net/http"

	"github.com/bourse-dev/bourse"
)

// Verbs for orders and reservations.
var (
	OrderQuote  = act[bourse.Order, bourse.Quote]("order/quote")
	OrderClaim  = act[bourse.Claim, ClaimReply]("order/claim")
	OrderStream = lines[bourse.Claim, ClaimPart]("order/stream", http.MethodPost) // claims a task and sends the parts of its answer as they arrive
	// Destroys the machine or volume if this worker has filled the order, and makes the worker refuse later claims
	// of the order; idempotent.
	OrderCancel = act[bourse.OrderID, bourse.Cancellation]("order/cancel")
	OrderShow   = read[bourse.OrderID, bourse.Decision]("order/show") // fails with not_found if this worker has not filled the order

	// Returns the image that the order's machine is waiting for; fails with not_found if no pull is in progress.
	OrderPull = read[bourse.OrderID, bourse.Image]("order/pull")

	ReservationList    = read[struct{}, []bourse.Hold]("reservation/list")              // returns all holds on the worker
	ReservationShow    = read[bourse.ReservationKey, []bourse.Hold]("reservation/show") // fails with not_found if there are no holds
	ReservationExtend  = act[ExtendHolds, []bourse.Hold]("reservation/extend")          // fails with not_found if the reservation has ended
	ReservationRelease = act[bourse.ReservationKey, struct{}]("reservation/release")    // refuses all later claims for the reservation; idempotent
)

// ClaimReply contains either a fill or a refusal.
type ClaimReply struct {
	Fill    *bourse.Fill    `json:"fill,omitempty"`
	Refusal *bourse.Refusal `json:"refusal,omitempty"`
}

// ClaimPart is one line of a claim's streamed reply. The last line contains a reply or a
// failure. An empty line means that the task has been recorded.
type ClaimPart struct {
	Output  []byte      `json:"output,omitempty"` // next part of the task's answer
	Reply   *ClaimReply `json:"reply,omitempty"`
	Failure *Failure    `json:"failure,omitempty"`
}

// ExtendHolds asks a worker to extend a reservation's holds, so that they expire no earlier than TTL from now.
type ExtendHolds struct {
	Reservation bourse.ReservationKey `json:"reservation"`
	TTL         bourse.Duration       `json:"ttl"`
}

// FailoverOrder is the outcome of an order that a broker placed for a proxy, to create a copy of a machine.
type FailoverOrder struct {
	Order    bourse.OrderID    `json:"order"` // set once the order has an id, even if an error occurs later
	Machine  bourse.MachineID  `json:"machine"`
	Instance bourse.InstanceID `json:"instance"`
	Worker   bourse.WorkerID   `json:"worker"`
	Region   bourse.Region     `json:"region"`
}

// FailoverPath is the path of the broker endpoint where proxies order copies of machines. The query parameter "machine"
// is the ID of the machine to copy.
const FailoverPath = "/proxy/orders"

// FailoverReply is a broker's reply to a request for FailoverPath. If Code is set, no machine was ordered.
type FailoverReply struct {
	FailoverOrder
	Code    bourse.Code `json:"code,omitempty"`
	Message string      `json:"message,omitempty"`
}
