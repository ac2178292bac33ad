package admit

import (
	"sync"

	"github.com/bourse-dev/bourse"
)

// maxTries is the number of orders that each of a Tries' two generations remembers.
const maxTries = 1 << 14

// Tries remembers which try of an order asked this worker last. A claim by an earlier
// try is refused: its broker may be gone, and the broker of the later try was told that
// the order is not filled here and fills it on another worker. A claim does not outlive
// its connection, and therefore not this daemon, so memory suffices.
type Tries struct {
	mu   sync.Mutex
	last map[bourse.OrderID]string // guarded by mu
	old  map[bourse.OrderID]string // guarded by mu; the generation before last
}

// Asked records that a try asks. It must be called before the worker reads what fills
// the order.
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

// refuse refuses a try if another one has asked since. It must be called in the
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
