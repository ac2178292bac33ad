package query

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Engine answers SQL. Make it with New; its methods may be called by anyone at
// any time.
type Engine struct {
	source Source
	now    func() time.Time
	log    *slog.Logger
	limits Limits
	subs   SubscriptionLimits
	pool   *pool

	slots  chan struct{} // one for each query that runs
	runs   chan struct{} // one for each subscription's statement that runs
	starts chan *subscription
	ended  chan struct{} // closed when Run has ended

	mu      sync.Mutex
	byID    map[string]*subscription
	byAsked map[string]*subscription // by statement, parameters and key
	readers int
}

// New makes an engine. SQLite's memory must have been bounded before the
// process opened its first connection: see BoundMemory. Codes: internal.
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

// Run keeps the subscriptions up to date until ctx ends; then they end, and the
// idle connections are closed. Call it once. Without it queries are answered,
// and subscriptions wait.
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

// subscribed returns the limits of a subscription's statement.
func (e *Engine) subscribed() Limits {
	return Limits{Time: e.subs.Time, Memory: e.limits.Memory}
}
