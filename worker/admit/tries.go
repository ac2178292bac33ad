package admit

import (
	"sync"

	"github.com/bourse-dev/bourse"
)

// maxTries is the maximum number of orders in each of the two generations of a Tries.
const maxTries = 1 << 14

// Tries remembers, for each order, the latest attempt (try) in which a broker asked this worker for a quote. The worker
// refuses a claim from an earlier attempt, because the broker of the later attempt has already learned that the order
// is not filled here, and may fill it on another worker. Tries are not persisted: a claim ends when its connection is
// closed, so no claim outlives this daemon.
type Tries struct {
	mu   sync.Mutex
	last map[bourse.OrderID]string // guarded by mu
	old  map[bourse.OrderID]string // guarded by mu; the previous generation
}

// Asked records the attempt in which a broker is asking this worker for a quote. It must be called before the worker
// checks whether the order is already filled.
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

// refuse refuses a claim's order if this worker was last asked for a quote in a different attempt. It must be called in
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
	return &bourse.Refusal{Reason: bourse.RefusedSuperseded, Detail: "a later attempt has replaced this one"}
}
