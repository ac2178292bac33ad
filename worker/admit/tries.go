package admit

import (
	"sync"

	"github.com/bourse-dev/bourse"
)

// maxTries is the number of orders that each of the two generations in a Tries
// remembers.
const maxTries = 1 << 14

// Tries remembers the latest try of each order that asked this worker. The worker refuses
// a claim by an earlier try: that try's broker may be gone, and the broker of the later
// try was told that the order is not filled here, so it may fill it on another worker.
// Tries need not be persisted: a claim does not outlive its connection, so it does not
// outlive this daemon either.
type Tries struct {
	mu   sync.Mutex
	last map[bourse.OrderID]string // guarded by mu
	old  map[bourse.OrderID]string // guarded by mu; the previous generation
}

// Asked records the try that asks about an order. It must be called before the worker
// reads what fills the order.
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

// refuse refuses an order if another try has asked about it since. It must be called in
// the transaction that fills the order.
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
