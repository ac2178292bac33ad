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

// waiter is a request that waits for room.
type waiter struct {
	target  *route.Target
	want    Criteria
	element *list.Element // in its app's queue; nil: it was answered
	turn    *Slot         // set before ready is closed, with err nil
	err     error
	ready   chan struct{}
}

// wait waits for room. The caller holds the mutex, which it gives up.
func (b *Balancer) wait(ctx context.Context, t *route.Target, want Criteria) (*Slot, error) {
	q := b.queues[t.App.ID]
	if b.waiting >= b.config.MaxWaiting || q != nil && q.Len() >= b.config.MaxWaitingPerApp {
		b.mu.Unlock()
		return nil, bourse.Errorf(bourse.CodeUnavailable, "all machines of app %s have as many requests as they may, and too many wait for them", t.App.Name)
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
			return w.turn, w.err
		case <-again.C:
			b.recheck(w)
		case <-ctx.Done():
			return b.giveUp(ctx, w, time.Since(began))
		}
	}
}

// giveUp takes a waiter out of its queue. A place that it was given meanwhile goes to
// the next.
func (b *Balancer) giveUp(ctx context.Context, w *waiter, after time.Duration) (*Slot, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case w.element != nil:
		b.remove(w)
	case w.turn != nil:
		w.turn.done = true
		b.release(w.turn)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, bourse.Errorf(bourse.CodeTimeout, "all machines of app %s have as many requests as they may: none had room within %s", w.target.App.Name, after.Round(time.Millisecond))
	}
	return nil, bourse.Errorf(bourse.CodeCanceled, "canceled while waiting for a machine: %w", context.Cause(ctx))
}

// remove takes a waiter out of its queue. The caller holds the mutex.
func (b *Balancer) remove(w *waiter) {
	id := w.target.App.ID
	q := b.queues[id]
	q.Remove(w.element)
	w.element = nil
	if b.waiting--; q.Len() == 0 {
		delete(b.queues, id)
	}
}

// answer ends a waiter's waiting with a place, or with an error. The caller holds the
// mutex.
func (b *Balancer) answer(w *waiter, turn *Slot, err error) {
	b.remove(w)
	w.turn, w.err = turn, err
	close(w.ready)
}

// handOn gives a place that was left at a machine to the first who waits for it. The
// caller holds the mutex.
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
		if w.want.isZero() { // nor can any other use it
			return
		}
	}
}

// look has a queue look again, when w is its first: one is enough to do it.
func (b *Balancer) recheck(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.element != nil && w.element.Prev() == nil {
		b.recheckAll(b.queues[w.target.App.ID])
	}
}

// retry has a waiter choose again, and reports whether it is still waiting. The caller
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

// Update says that another table is in use: who waits looks at it at once.
func (b *Balancer) Update(table *route.Table) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.table = table
	for _, q := range b.queues {
		b.recheckAll(q)
	}
}

// lookAll has all of a queue choose again, in order. The caller holds the mutex.
func (b *Balancer) recheckAll(q *list.List) {
	// Requests that ask for nothing are all alike: when one finds no room, none does.
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
	return bourse.Errorf(bourse.CodeNotFound, "app %s serves port %d no more", t.App.Name, t.Port.First)
}

// errNone is what who asks may know; why is for the log.
func (b *Balancer) errNone(t *route.Target, w *Criteria) error {
	if w.Only {
		return &bourse.Error{Code: bourse.CodeUnavailable, Message: "the machine that was asked for cannot answer", Err: errors.New(whyInstanceUnusable(t, w))}
	}
	count := map[string]int{}
	for i := range t.Backends {
		why := "in no region that was asked for"
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
		Code: bourse.CodeUnavailable, Message: fmt.Sprintf("no machine of app %s can answer", t.App.Name),
		Err: errors.New(strings.Join(parts[:min(len(parts), most)], "; ")),
	}
}

func whyInstanceUnusable(t *route.Target, w *Criteria) string {
	m := t.Backend(w.Instance)
	switch {
	case m == nil:
		return "the app has none of this id"
	case !w.allows(m):
		return "it is in no region that was asked for"
	}
	return unusableReason(m)
}
