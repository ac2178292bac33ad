package market

import (
	"sync"

	"github.com/bourse-dev/bourse"
)

// memory keeps the last decisions, and drops the oldest for a new one.
type memory struct {
	most int

	mu   sync.Mutex
	ring []bourse.OrderID // in order of arrival from next on, once it is full
	next int
	of   map[bourse.OrderID]*bourse.Decision
}

func newMemory(most int) memory {
	return memory{most: most, of: map[bourse.OrderID]*bourse.Decision{}}
}

func (m *memory) put(d bourse.Decision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, known := m.of[d.Order]
	m.of[d.Order] = &d
	switch {
	case known: // it has its place in the ring
	case len(m.ring) < m.most:
		m.ring = append(m.ring, d.Order)
	default:
		delete(m.of, m.ring[m.next])
		m.ring[m.next] = d.Order
		m.next = (m.next + 1) % m.most
	}
}

// drop removes the order, whose place in the ring is reused in turn. Should the
// order be put again before that, it is only dropped early.
func (m *memory) drop(id bourse.OrderID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, id)
}

// chosen returns the decisions of orders whose callers chose id. It looks
// at all of them: an order is usually asked for by its own id.
func (m *memory) chosen(id bourse.OrderID) []bourse.Decision {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []bourse.Decision
	for _, d := range m.of {
		if d.Chosen == id {
			out = append(out, *d)
		}
	}
	return out
}

// recent adds the decisions that keep wants to out.
func (m *memory) recent(out []bourse.Decision, keep func(*bourse.Decision) bool) []bourse.Decision {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.of {
		if keep(d) {
			out = append(out, *d)
		}
	}
	return out
}

func (m *memory) get(id bourse.OrderID) (bourse.Decision, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.of[id]
	if d == nil {
		return bourse.Decision{}, false
	}
	return *d, true
}
