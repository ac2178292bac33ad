package fabric

import (
	"net/http"

	"github.com/bourse-dev/bourse"
)

// The verbs about orders and reservations.
var (
	OrderQuote  = act[bourse.Order, bourse.Quote]("order/quote")
	OrderClaim  = act[bourse.Claim, ClaimReply]("order/claim")
	OrderStream = lines[bourse.Claim, ClaimPart]("order/stream", http.MethodPost) // a claim of a task whose answer comes in parts
	OrderCancel = act[bourse.OrderID, bourse.Cancellation]("order/cancel")        // it is not filled here, now or later; idempotent
	OrderShow   = read[bourse.OrderID, bourse.Decision]("order/show")             // not_found: it was not filled here

	OrderPull = read[bourse.OrderID, bourse.Image]("order/pull") // the image that its machine waits for; not_found: none is being pulled for it

	ReservationList    = read[struct{}, []bourse.Hold]("reservation/list")              // all that is held now
	ReservationShow    = read[bourse.ReservationKey, []bourse.Hold]("reservation/show") // not_found: nothing is held
	ReservationExtend  = act[ExtendHolds, []bourse.Hold]("reservation/extend")          // not_found: it has ended
	ReservationRelease = act[bourse.ReservationKey, struct{}]("reservation/release")    // what it asks for later is refused; idempotent
)

// ClaimReply has either a fill or a refusal.
type ClaimReply struct {
	Fill    *bourse.Fill    `json:"fill,omitempty"`
	Refusal *bourse.Refusal `json:"refusal,omitempty"`
}

// ClaimPart is one line of a claim's reply that streams. The last one has a
// reply or a failure; an empty one means that the task was recorded.
type ClaimPart struct {
	Output  []byte      `json:"output,omitempty"` // of the answer, as it comes
	Reply   *ClaimReply `json:"reply,omitempty"`
	Failure *Failure    `json:"failure,omitempty"`
}

// ExtendHolds makes all that a reservation holds on a worker end so long from
// now.
type ExtendHolds struct {
	Reservation bourse.ReservationKey `json:"reservation"`
	TTL         bourse.Duration       `json:"ttl"`
}

// FailoverOrder is the outcome of an order for a machine like another one, which a broker
// places for a proxy.
type FailoverOrder struct {
	Order    bourse.OrderID    `json:"order"` // set as soon as there is one, also with an error
	Machine  bourse.MachineID  `json:"machine"`
	Instance bourse.InstanceID `json:"instance"`
	Worker   bourse.WorkerID   `json:"worker"`
	Region   bourse.Region     `json:"region"`
}

// FailoverPath is the path at which brokers place orders for proxies. The query parameter
// "machine" is the id of the machine that the new one is to be like.
const FailoverPath = "/proxy/orders"

// FailoverReply is a broker's reply to such a request. With a code, nothing was ordered.
type FailoverReply struct {
	FailoverOrder
	Code    bourse.Code `json:"code,omitempty"`
	Message string      `json:"message,omitempty"`
}
