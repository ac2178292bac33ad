package market

import (
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// ahead are the orders for machines that this exchange has placed a moment ago, or is about
// to: orders of one moment are quoted before any of them is filled, and by their quotes alone they
// would all go to the same worker. Like a quote, it is a hint.
type ahead struct {
	mu    sync.Mutex
	count uint64 // of choices ever made
	apps  map[bourse.AppRef][]*choice
	swept int // apps that were left when apps was last swept
}

// choice is an order that has chosen its worker.
type choice struct {
	number uint64 // by which a later one is told from an earlier one
	at     time.Time
	worker bourse.WorkerID
	done   time.Time // when it was filled
}

// Bounds of what is kept. What goes beyond is not counted.
const (
	maxAhead  = 256 // choices of an app
	sweepApps = 64
)

// now returns the number of the last choice: those after it are in no quote that is asked for now.
func (a *ahead) now() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count
}

// choose ranks quotes that were asked for when the last choice was that number, with the machines
// counted that have been placed since, or within slack before and are not filled yet. The best is
// noted as chosen, nil when there is none.
func (a *ahead) choose(app bourse.AppRef, since uint64, slack time.Duration, quotes []bourse.Quote, rank func() []Ranked) ([]Ranked, *choice) {
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
	c := &choice{number: a.count, at: now, worker: quotes[ranked[0].Quote].Worker}
	a.apps[app] = append(list[max(0, len(list)-maxAhead+1):], c)
	a.sweep(now)
	return ranked, c
}

// young returns the choices of an app that are not old, and keeps no others.
func (a *ahead) young(app bourse.AppRef, now time.Time) []*choice {
	if a.apps == nil {
		a.apps = map[bourse.AppRef][]*choice{}
	}
	list, ok := a.apps[app]
	if !ok {
		return nil
	}
	list = slices.DeleteFunc(list, func(c *choice) bool { return c.old(now) })
	if a.apps[app] = list; len(list) == 0 {
		delete(a.apps, app)
	}
	return list
}

// old reports whether every quote that was asked for before the choice is there by now.
func (c *choice) old(now time.Time) bool {
	return !c.done.IsZero() && now.Sub(c.done) > longestAsking || now.Sub(c.at) > bourse.MaxWithin
}

// longestAsking is longer than workers are asked for quotes.
const longestAsking = 2 * time.Second

// sweep removes apps of which nothing is kept any more.
func (a *ahead) sweep(now time.Time) {
	if len(a.apps) < 2*a.swept+sweepApps {
		return
	}
	for app, list := range a.apps {
		if !slices.ContainsFunc(list, func(c *choice) bool { return !c.old(now) }) {
			delete(a.apps, app)
		}
	}
	a.swept = len(a.apps)
}

// move notes that the order is claimed at another worker.
func (a *ahead) move(c *choice, to bourse.WorkerID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.worker != to {
		a.count++
		c.number, c.worker, c.at = a.count, to, time.Now()
	}
}

// end notes where the order was filled; "" when it was not.
func (a *ahead) end(c *choice, at bourse.WorkerID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.worker, c.done = at, time.Now()
}
