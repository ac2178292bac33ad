package market

import (
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// recentPicks records the machine orders that this exchange has just placed or is about to place. Concurrent orders are
// quoted before any of them is filled, and by their quotes alone they would all go to the same worker. Like a quote,
// the record is only a hint.
type recentPicks struct {
	mu    sync.Mutex
	count uint64 // choices ever made
	apps  map[bourse.AppRef][]*pick
	swept int // number of apps after the last sweep
}

// pick is an order that has chosen its worker.
type pick struct {
	number uint64 // increases with each choice
	at     time.Time
	worker bourse.WorkerID
	done   time.Time // when it was filled; zero until then
}

// Limits. Choices beyond them are not counted.
const (
	maxPicks  = 256 // choices per app
	sweepApps = 64
)

// now returns the number of the last choice. Quotes requested from now on do not reflect later choices.
func (a *recentPicks) now() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count
}

// pick ranks quotes that were requested when since was the last choice. It counts the machines placed after that,
// and those chosen within slack before it that are not filled yet. It records the best worker as chosen and returns
// the record, nil if rank returns nothing.
func (a *recentPicks) pick(app bourse.AppRef, since uint64, slack time.Duration, quotes []bourse.Quote, rank func() []Ranked) ([]Ranked, *pick) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	list := a.young(app, now)
	for _, c := range list {
		if c.number <= since && (!c.done.IsZero() || now.Sub(c.at) > slack) {
			continue
		}
		if i := slices.IndexFunc(quotes, func(q bourse.Quote) bool { return q.Worker == c.worker }); i >= 0 && quotes[i].Refusal == nil {
			quotes[i].AppMachines++
		}
	}
	ranked := rank()
	if len(ranked) == 0 {
		return ranked, nil
	}
	a.count++
	c := &pick{number: a.count, at: now, worker: quotes[ranked[0].Quote].Worker}
	a.apps[app] = append(list[max(0, len(list)-maxPicks+1):], c)
	a.sweep(now)
	return ranked, c
}

// young returns the recent choices of an app and drops the others.
func (a *recentPicks) young(app bourse.AppRef, now time.Time) []*pick {
	if a.apps == nil {
		a.apps = map[bourse.AppRef][]*pick{}
	}
	list, ok := a.apps[app]
	if !ok {
		return nil
	}
	list = slices.DeleteFunc(list, func(c *pick) bool { return c.old(now) })
	if a.apps[app] = list; len(list) == 0 {
		delete(a.apps, app)
	}
	return list
}

// old reports whether every quote requested before the choice has arrived by now.
func (c *pick) old(now time.Time) bool {
	return !c.done.IsZero() && now.Sub(c.done) > maxQuoteTime || now.Sub(c.at) > bourse.MaxWithin
}

// maxQuoteTime exceeds the time that workers have to answer a request for quotes.
const maxQuoteTime = 2 * time.Second

// sweep removes apps without recent choices.
func (a *recentPicks) sweep(now time.Time) {
	if len(a.apps) < 2*a.swept+sweepApps {
		return
	}
	for app, list := range a.apps {
		if !slices.ContainsFunc(list, func(c *pick) bool { return !c.old(now) }) {
			delete(a.apps, app)
		}
	}
	a.swept = len(a.apps)
}

// move records that the order is now being claimed at another worker.
func (a *recentPicks) move(c *pick, to bourse.WorkerID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.worker != to {
		a.count++
		c.number, c.worker, c.at = a.count, to, time.Now()
	}
}

// end records where the order was filled, "" if it was not.
func (a *recentPicks) end(c *pick, at bourse.WorkerID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.worker, c.done = at, time.Now()
}
