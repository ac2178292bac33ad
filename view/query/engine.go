package query

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Engine answers SQL queries. Its methods are safe for concurrent use.
type Engine struct {
	source Source
	now    func() time.Time
	log    *slog.Logger
	limits Limits
	subs   SubscriptionLimits
	pool   *pool

	slots  chan struct{} // one element for each running query
	runs   chan struct{} // one element for each running statement of a subscription
	starts chan *subscription
	ended  chan struct{} // closed when Run has returned

	mu      sync.Mutex
	byID    map[string]*subscription
	byAsked map[string]*subscription // subscriptions by their requests: statement, parameters and key
	readers int
}

// New creates an Engine. Call BoundMemory before the process opens its first SQLite connection; otherwise, New
// fails. Errors: internal.
func New(c Config) (*Engine, error) {
	if err := BoundMemory(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	return &Engine{
		source: c.Source, now: c.Now, log: c.Log, limits: c.Limits, subs: c.Subscriptions,
		pool:    &pool{path: c.Source.Path, memory: c.Limits.Memory, keep: c.Limits.Statements + c.Subscriptions.Runs},
		slots:   make(chan struct{}, c.Limits.Statements),
		runs:    make(chan struct{}, c.Subscriptions.Runs),
		starts:  make(chan *subscription),
		ended:   make(chan struct{}),
		byID:    map[string]*subscription{},
		byAsked: map[string]*subscription{},
	}, nil
}

// Run keeps the subscriptions up to date until ctx is done. It then ends the subscriptions and closes the idle
// connections. Call Run once. Queries also work before Run is called, but new subscriptions wait for Run.
func (e *Engine) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer e.pool.prune(nil)
	defer running.Wait()
	defer close(e.ended)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-e.starts:
			running.Go(func() { s.run(ctx) })
		case <-tick.C:
			e.pool.refresh()
		}
	}
}

// subscribed returns the limits for one run of a subscription's statement.
func (e *Engine) subscribed() Limits {
	return Limits{Time: e.subs.Time, Memory: e.limits.Memory}
}
