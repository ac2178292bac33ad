package admit

import (
	"sync"

	"github.com/bourse-dev/bourse"
)

// maxTries bounds what is remembered of tries.
const maxTries = 1 << 14

// Tries remembers which try of an order asked here last. A claim of an earlier
// one is refused: the broker that sent it may be gone, and the one that has
// asked since has heard that the order is not filled here, and fills it
// elsewhere. No claim outlives the connection that it came by, nor therefore
// this daemon, so memory will do.
type Tries struct {
	mu   sync.Mutex
	last map[bourse.OrderID]string
	old  map[bourse.OrderID]string // of the maxTries before
}

// Asked notes that a try asks. It is called before what fills the order is
// looked up.
func (t *Tries) Asked(order *bourse.Order) {
	if order.Try == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil || len(t.last) >= maxTries {
		t.last, t.old = map[bourse.OrderID]string{}, t.last
	}
	t.last[order.ID] = order.Try
}

// refuse refuses a try after which another one asked. It is called in the
// transaction that fills the order.
func (t *Tries) refuse(order *bourse.Order) *bourse.Refusal {
	if order.Try == "" {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	last, ok := t.last[order.ID]
	if !ok {
		last, ok = t.old[order.ID]
	}
	if !ok || last == order.Try {
		return nil
	}
	return &bourse.Refusal{Reason: bourse.RefusedOvertaken, Detail: "another try of the order came after this one"}
}
