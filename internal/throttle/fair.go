package throttle

import (
	"container/list"
	"sync"
)

// FairBudget is a budget shared by several principals, such as organizations or addresses. It is
// safe for concurrent use.
type FairBudget struct {
	total int64

	mu      sync.Mutex
	used    int64
	holders map[string]*holder // principals that have open holds
}

// holder is a principal with open holds.
type holder struct {
	name     string
	open     int
	held     int64
	cuttable list.List // the holds (*Hold) that can be cut off, oldest first
}

// NewFairBudget returns a budget of total units.
func NewFairBudget(total int64) *FairBudget {
	return &FairBudget{total: total, holders: map[string]*holder{}}
}

// Hold is the part of a budget that one connection or request holds. It must be released.
type Hold struct {
	budget *FairBudget

	// Guarded by the budget's mutex.
	of    *holder // nil if released
	cut   func()  // called when the hold is cut off; nil if it cannot be
	n     int64
	place *list.Element // position in of.cuttable; nil if the hold is empty or cannot be cut off
	over  bool          // whether it was cut off
}

// Open returns an empty hold for a principal. If the hold is cut off, cut is called once. cut must
// not block, and must make the hold's owner release the hold soon. If cut is nil, the hold is never
// cut off.
func (b *FairBudget) Open(principal string, cut func()) *Hold {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := &Hold{budget: b, cut: cut}
	b.enter(h, principal)
	return h
}

// Take adds n units to the hold and reports whether it succeeded. It leaves at least reserve units
// of the budget free. If necessary, it cuts off holds of principals that hold more units than this
// hold's principal.
func (h *Hold) Take(n, reserve int64) bool {
	b := h.budget
	b.mu.Lock()
	var cut []func()
	ok := h.of != nil && !h.over
	for ok && n > b.total-reserve-b.used {
		victim := b.largest(h.of, n)
		if victim == nil {
			ok = false
			break
		}
		cut = append(cut, victim.cut)
		b.drop(victim)
		victim.over = true
	}
	if ok {
		b.add(h, n)
	}
	b.mu.Unlock()
	for _, f := range cut {
		f()
	}
	return ok
}

// Move transfers the hold and its units to another principal.
func (h *Hold) Move(principal string) {
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.of == nil || h.of.name == principal {
		return
	}
	n := h.n
	b.drop(h)
	b.leave(h)
	if !h.over {
		b.enter(h, principal)
		b.add(h, n)
	}
}

// Keep marks the hold so that it can no longer be cut off.
func (h *Hold) Keep() {
	h.budget.mu.Lock()
	defer h.budget.mu.Unlock()
	h.unlist()
	h.cut = nil
}

// Over reports whether the hold was cut off.
func (h *Hold) Over() bool {
	h.budget.mu.Lock()
	defer h.budget.mu.Unlock()
	return h.over
}

// Release returns the hold's units to the budget. Further calls have no effect.
func (h *Hold) Release() {
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.of != nil {
		b.drop(h)
		b.leave(h)
	}
}

// largest returns the hold to cut off so that taker can get n more units. The hold is the oldest
// one that can be cut off, of the principal with the most units. largest ignores principals whose
// holds cannot be cut off, and those that do not hold more units than taker would then hold. If no
// principal remains, it returns nil. The mutex must be held.
func (b *FairBudget) largest(taker *holder, n int64) *Hold {
	var most *holder
	for _, o := range b.holders {
		if o != taker && o.cuttable.Len() > 0 && o.held > taker.held+n && (most == nil || o.held > most.held) {
			most = o
		}
	}
	if most == nil {
		return nil
	}
	victim, _ := most.cuttable.Front().Value.(*Hold)
	return victim
}

// enter assigns a hold to a principal. The mutex must be held.
func (b *FairBudget) enter(h *Hold, principal string) {
	o := b.holders[principal]
	if o == nil {
		o = &holder{name: principal}
		b.holders[principal] = o
	}
	o.open++
	h.of = o
}

// add adds n units to a hold. The mutex must be held.
func (b *FairBudget) add(h *Hold, n int64) {
	h.n += n
	h.of.held += n
	b.used += n
	if h.cut != nil && h.n > 0 && h.place == nil {
		h.place = h.of.cuttable.PushBack(h)
	}
}

// drop returns a hold's units to the budget. The mutex must be held.
func (b *FairBudget) drop(h *Hold) {
	b.used -= h.n
	h.of.held -= h.n
	h.n = 0
	h.unlist()
}

// leave removes a hold from its principal. The mutex must be held.
func (b *FairBudget) leave(h *Hold) {
	if h.of.open--; h.of.open == 0 {
		delete(b.holders, h.of.name)
	}
	h.of = nil
}

func (h *Hold) unlist() {
	if h.place != nil {
		h.of.cuttable.Remove(h.place)
		h.place = nil
	}
}
