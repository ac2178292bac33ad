package balance

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy/route"
)

// waiter is a request that waits for a slot.
type waiter struct {
	target  *route.Target
	want    Criteria
	element *list.Element // the waiter's place in its app's queue; nil if the waiter has received its slot or error
	slot    *Slot         // valid once ready is closed, if err is nil
	err     error
	ready   chan struct{}
}

// wait waits for a slot. The caller must hold the mutex; wait unlocks it.
func (b *Balancer) wait(ctx context.Context, t *route.Target, want Criteria) (*Slot, error) {
	q := b.queues[t.App.ID]
	if b.waiting >= b.config.MaxWaiting || q != nil && q.Len() >= b.config.MaxWaitingPerApp {
		b.mu.Unlock()
		return nil, bourse.Errorf(bourse.CodeUnavailable, "all machines of app %s are at their hard limits, and its queue is full", t.App.Name)
	}
	if q == nil {
		q = list.New()
		b.queues[t.App.ID] = q
	}
	w := &waiter{target: t, want: want, ready: make(chan struct{})}
	w.element = q.PushBack(w)
	b.waiting++
	b.mu.Unlock()

	again := time.NewTicker(recheckInterval)
	defer again.Stop()
	began := time.Now()
	for {
		select {
		case <-w.ready:
			return w.slot, w.err
		case <-again.C:
			b.recheck(w)
		case <-ctx.Done():
			return b.giveUp(ctx, w, time.Since(began))
		}
	}
}

// giveUp removes a waiter from its queue, and returns an error. If the waiter has received a slot in the meantime,
// the slot goes to the next waiter.
func (b *Balancer) giveUp(ctx context.Context, w *waiter, after time.Duration) (*Slot, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case w.element != nil:
		b.remove(w)
	case w.slot != nil:
		w.slot.done = true
		b.release(w.slot)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, bourse.Errorf(bourse.CodeTimeout, "all machines of app %s were at their hard limits for %s", w.target.App.Name, after.Round(time.Millisecond))
	}
	return nil, bourse.Errorf(bourse.CodeCanceled, "canceled while waiting for a machine: %w", context.Cause(ctx))
}

// remove removes a waiter from its queue. The caller holds the mutex.
func (b *Balancer) remove(w *waiter) {
	id := w.target.App.ID
	q := b.queues[id]
	q.Remove(w.element)
	w.element = nil
	if b.waiting--; q.Len() == 0 {
		delete(b.queues, id)
	}
}

// answer gives a waiter a slot or an error, and removes it from its queue. The caller holds the mutex.
func (b *Balancer) answer(w *waiter, slot *Slot, err error) {
	b.remove(w)
	w.slot, w.err = slot, err
	close(w.ready)
}

// handOver passes a slot that was just released to the first waiter that can use it. The caller holds the mutex.
func (b *Balancer) handOver(app string, id bourse.MachineID) {
	q := b.queues[app]
	if q == nil {
		return
	}
	for e := q.Front(); e != nil; e = e.Next() {
		w, _ := e.Value.(*waiter)
		m := w.target.Backend(id)
		if m == nil || !w.want.allows(m) {
			continue
		}
		if _, how := rankMachine(m, &w.want, &b.input); how == Chosen {
			b.answer(w, b.reserve(w.target, m), nil)
			return
		}
		if w.want.isZero() { // if a waiter without criteria cannot use the machine, later waiters cannot use it either
			return
		}
	}
}

// recheck tries again to choose a machine for each waiter in w's queue, but only if w is the first one. Otherwise, each
// waiter would cause a recheck of the whole queue.
func (b *Balancer) recheck(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.element != nil && w.element.Prev() == nil {
		b.recheckAll(b.queues[w.target.App.ID])
	}
}

// retry tries again to choose a machine for a waiter, and reports whether the waiter must keep waiting. The caller
// holds the mutex.
func (b *Balancer) retry(w *waiter) bool {
	switch i, how := Choose(w.target.Backends, &w.want, &b.input); how {
	case Chosen:
		b.answer(w, b.reserve(w.target, &w.target.Backends[i]), nil)
		return false
	case None:
		b.answer(w, nil, b.errNone(w.target, &w.want))
		return false
	case Full:
	}
	return true
}

// Update replaces the routing table, and immediately tries to choose machines from it for the waiting requests.
func (b *Balancer) Update(table *route.Table) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.table = table
	for _, q := range b.queues {
		b.recheckAll(q)
	}
}

// recheckAll tries again to choose a machine for each waiter in a queue, in order. The caller
// holds the mutex.
func (b *Balancer) recheckAll(q *list.List) {
	// Requests without criteria are interchangeable: if one of them does not get a slot, the others cannot get one
	// either.
	stuck := map[*route.Target]bool{}
	for e := q.Front(); e != nil; {
		w, _ := e.Value.(*waiter)
		e = e.Next()
		t, ok := b.refresh(w.target)
		if !ok {
			b.answer(w, nil, errNotServed(w.target))
			continue
		}
		w.target = t
		if plain := w.want.isZero(); (!plain || !stuck[t]) && b.retry(w) && plain {
			stuck[t] = true
		}
	}
}

func (w *Criteria) isZero() bool { return len(w.Regions) == 0 && w.Instance == "" && len(w.Tried) == 0 }

func errNotServed(t *route.Target) error {
	return bourse.Errorf(bourse.CodeNotFound, "app %s no longer serves port %d", t.App.Name, t.Port.First)
}

// errNone returns the error for a request that no machine can serve. Its message is for the client, and its cause is
// for the log.
func (b *Balancer) errNone(t *route.Target, w *Criteria) error {
	if w.Only {
		return &bourse.Error{Code: bourse.CodeUnavailable, Message: "the requested machine is not available", Err: errors.New(whyInstanceUnusable(t, w))}
	}
	count := map[string]int{}
	for i := range t.Backends {
		why := "not in a requested region"
		if w.allows(&t.Backends[i]) {
			why = unusableReason(&t.Backends[i])
		}
		count[why]++
	}
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d: %s", count[why], why))
	}
	const most = 4
	return &bourse.Error{
		Code: bourse.CodeUnavailable, Message: fmt.Sprintf("no machine of app %s is available", t.App.Name),
		Err: errors.New(strings.Join(parts[:min(len(parts), most)], "; ")),
	}
}

func whyInstanceUnusable(t *route.Target, w *Criteria) string {
	m := t.Backend(w.Instance)
	switch {
	case m == nil:
		return "the app has no machine with this id"
	case !w.allows(m):
		return "it is not in a requested region"
	}
	return unusableReason(m)
}
