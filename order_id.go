package bourse

import (
	"crypto/sha256"

	"github.com/oklog/ulid/v2"
)

// An id that a caller chooses for an order means something only within the
// order's app: the id that the order then has everywhere is made of both. Its
// last five bytes are a mark made of the app and of the bytes before, so that
// an id which is the app's already stays as it is; the five bytes in front of
// the mark are made of the app and of the chosen id; its time is that of the
// chosen one. A client that knows the id of another app's order therefore names
// another order with it.

// markBytes is how long the mark at the end of an id is.
const markBytes = 5

// In returns the id that an order has in the app of this id, for the id that
// its caller chose; "" for what is not an id. It is idempotent.
func (o OrderID) In(app string) OrderID { return OrderID(idIn("order", string(o), app)) }

// In returns the key that a reservation has whose first order is of the app of
// this id, for the key that its caller chose; "" for what is not a key. It is
// idempotent.
func (k ReservationKey) In(app string) ReservationKey {
	return ReservationKey(idIn("reservation", string(k), app))
}

func idIn(what, chosen, app string) string {
	id, err := ulid.ParseStrict(chosen)
	if err != nil {
		return ""
	}
	marked := id
	mark(&marked, what, app)
	if marked == id {
		return id.String()
	}
	made := sumOf(what, app, string(id[:]))
	copy(id[6:], made[:len(id)-6-markBytes])
	mark(&id, what, app)
	return id.String()
}

// mark ends id with the app's mark.
func mark(id *ulid.ULID, what, app string) {
	body := id[:len(id)-markBytes]
	sum := sumOf("mark of "+what, app, string(body))
	copy(id[len(body):], sum[:])
}

func sumOf(what, app, rest string) [sha256.Size]byte {
	return sha256.Sum256([]byte(what + "\x00" + app + "\x00" + rest))
}
