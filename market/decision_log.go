package market

import (
	"sync"

	"github.com/bourse-dev/bourse"
)

// decisionLog contains the latest decisions. When it is full, a new decision replaces the oldest one.
type decisionLog struct {
	max int

	mu      sync.Mutex
	ring    []bourse.OrderID // once the ring is full, ring[next] is the oldest element
	next    int
	byOrder map[bourse.OrderID]*bourse.Decision
}

func newMemory(most int) decisionLog {
	return decisionLog{max: most, byOrder: map[bourse.OrderID]*bourse.Decision{}}
}

func (m *decisionLog) put(d bourse.Decision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, known := m.byOrder[d.Order]
	m.byOrder[d.Order] = &d
	switch {
	case known: // the order is already in the ring
	case len(m.ring) < m.max:
		m.ring = append(m.ring, d.Order)
	default:
		delete(m.byOrder, m.ring[m.next])
		m.ring[m.next] = d.Order
		m.next = (m.next + 1) % m.max
	}
}

// drop removes the decision about an order. The order's entry in the ring remains until it is overwritten. If the
// order is added again before then, its new decision will be removed too early.
func (m *decisionLog) drop(id bourse.OrderID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byOrder, id)
}

// chosen returns the decisions about the orders whose callers chose the given ID. It scans all
// decisions. Orders are rarely looked up in this way, so an index is not worthwhile.
func (m *decisionLog) chosen(id bourse.OrderID) []bourse.Decision {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []bourse.Decision
	for _, d := range m.byOrder {
		if d.ChosenID == id {
			out = append(out, *d)
		}
	}
	return out
}

// recent appends to out the decisions for which keep returns true. It returns the extended slice.
func (m *decisionLog) recent(out []bourse.Decision, keep func(*bourse.Decision) bool) []bourse.Decision {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.byOrder {
		if keep(d) {
			out = append(out, *d)
		}
	}
	return out
}

func (m *decisionLog) get(id bourse.OrderID) (bourse.Decision, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.byOrder[id]
	if d == nil {
		return bourse.Decision{}, false
	}
	return *d, true
}
