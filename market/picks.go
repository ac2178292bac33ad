package market

import (
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// recentPicks records the workers that this exchange has recently picked for machine orders. An app's concurrent orders
// are quoted before any of them is filled, so they would all go to the same worker if only their quotes counted. Like a
// quote, a record is only a hint.
type recentPicks struct {
	mu    sync.Mutex
	count uint64 // number of picks so far
	apps  map[bourse.AppRef][]*pick
	swept int // number of apps after the last sweep
}

// pick records which worker was picked for an order.
type pick struct {
	number uint64 // sequence number; later picks have greater numbers
	at     time.Time
	worker bourse.WorkerID
	done   time.Time // when the order was filled or failed; zero while it is in progress
}

// Limits of recentPicks. If an app has more picks, the oldest are dropped.
const (
	maxPicks  = 256 // maximum number of picks per app
	sweepApps = 64
)

// now returns the number of the latest pick. It must be called just before quotes are requested, because the quotes may
// not reflect any later picks.
func (a *recentPicks) now() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count
}

// pick ranks the quotes of an order and records a pick of the best worker. It returns the ranking
// and the pick. If the ranking is empty, the pick is nil.
//
// A worker's quote may not include the machines for which the worker was recently picked, so the ranking counts one
// more machine for each of these picks. since is the number of the latest pick when the quotes were requested. All
// later picks count. An earlier pick counts only if it was made at most slack ago and its order is still in progress.
func (a *recentPicks) pick(app bourse.AppRef, since uint64, slack time.Duration, quotes []bourse.Quote, rank func() []Ranked) ([]Ranked, *pick) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	list := a.recent(app, now)
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

// recent returns an app's recent picks and removes its old ones.
func (a *recentPicks) recent(app bourse.AppRef, now time.Time) []*pick {
	if a.apps == nil {
		a.apps = map[bourse.AppRef][]*pick{}
	}
	list, ok := a.apps[app]
	if !ok {
		return nil
	}
	list = slices.DeleteFunc(list, func(c *pick) bool { return c.expired(now) })
	if a.apps[app] = list; len(list) == 0 {
		delete(a.apps, app)
	}
	return list
}

// expired reports whether a pick no longer matters, because all quotes that were requested before
// its order ended must have arrived by now.
func (c *pick) expired(now time.Time) bool {
	return !c.done.IsZero() && now.Sub(c.done) > maxQuoteTime || now.Sub(c.at) > bourse.MaxOrderTimeout
}

// maxQuoteTime is longer than any worker may take to answer a request for quotes.
const maxQuoteTime = 2 * time.Second

// sweep removes the apps that have no recent picks.
func (a *recentPicks) sweep(now time.Time) {
	if len(a.apps) < 2*a.swept+sweepApps {
		return
	}
	for app, list := range a.apps {
		if !slices.ContainsFunc(list, func(c *pick) bool { return !c.expired(now) }) {
			delete(a.apps, app)
		}
	}
	a.swept = len(a.apps)
}

// move records that a pick's order is now being claimed on another worker.
func (a *recentPicks) move(c *pick, to bourse.WorkerID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.worker != to {
		a.count++
		c.number, c.worker, c.at = a.count, to, time.Now()
	}
}

// end records which worker has filled a pick's order. The worker is "" if the order was not filled.
func (a *recentPicks) end(c *pick, at bourse.WorkerID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.worker, c.done = at, time.Now()
}
