package query

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
)

// subscription is a statement whose result is kept up to date for its readers. Only the subscription's own goroutine
// changes the fields that mu guards, except readers and idle.
type subscription struct {
	engine *Engine
	id     string
	asked  string // key in Engine.byAsked
	ask    request

	mu      sync.Mutex
	now     *result // nil until the first run has succeeded
	history history
	next    int64         // number for the next row to be inserted
	ended   error         // reason why the subscription has ended; nil if it has not
	news    chan struct{} // closed and replaced after each change; closed when the subscription ends
	readers int
	idle    time.Time // time when the last reader left
}

func newSubscription(e *Engine, id, asked string, q request) *subscription {
	return &subscription{
		engine: e, id: id, asked: asked, ask: q,
		history: history{limit: e.subs.History, first: 1}, next: 1, news: make(chan struct{}), idle: time.Now(),
	}
}

// maxFailures is the number of consecutive failures of the statement after which a subscription
// ends.
const maxFailures = 5

// run keeps the result up to date until ctx is done, the subscription has been without readers for
// too long, or it cannot continue. It then ends the subscription.
func (s *subscription) run(ctx context.Context) {
	err := s.follow(ctx)
	if ctx.Err() != nil {
		err = bourse.Errorf(bourse.CodeUnavailable, "the server is stopping")
	}
	s.end(err)
}

// follow keeps the result up to date. It returns the reason why the subscription ends, or nil if
// ctx is done.
func (s *subscription) follow(ctx context.Context) error {
	changed, stop, err := s.watch(ctx)
	if err != nil {
		return err
	}
	defer stop()
	for failed := 0; ; {
		took, err := s.refresh(ctx)
		// Limit a slow statement to about a tenth of a processor's time.
		pause := max(s.engine.subs.Pause, 10*took)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			failed = 0
		case s.isFatal(err, failed):
			return err
		default:
			failed++
			pause = (20 * s.engine.subs.Pause) << min(failed, maxFailures)
		}
		if !s.wait(ctx, after(pause)) || failed == 0 && !s.wait(ctx, changed) {
			return s.endReason(ctx)
		}
	}
}

// watch returns a channel that signals changes to the tables that the statement reads, and a
// function that ends the notifications. The channel is nil if no table that the statement reads can
// change.
func (s *subscription) watch(ctx context.Context) (changed <-chan struct{}, stop func(), err error) {
	e := s.engine
	if err := s.acquireRun(ctx); err != nil {
		return nil, nil, err
	}
	tables, err := e.tables(ctx, s.ask, e.subscribed())
	<-e.runs
	if err != nil {
		return nil, nil, err
	}
	names, everything := watched(tables)
	if len(names) == 0 && !everything {
		return nil, func() {}, nil // the tables that the statement reads never change
	}
	changed, stop = e.source.Watch(names...)
	return changed, stop, nil
}

// isFatal reports whether the subscription must end because of err. failed is the number of consecutive failures
// before err. Most errors are temporary: for example, while the view's file is being replaced, the file or its
// tables may be missing.
func (s *subscription) isFatal(err error, failed int) bool {
	s.mu.Lock()
	first := s.now == nil
	s.mu.Unlock()
	switch {
	case first, errors.Is(err, errChanged), errors.Is(err, errTooLarge):
		return true
	case bourse.CodeOf(err) == bourse.CodeUnavailable:
		return false
	default:
		return failed+1 >= maxFailures
	}
}

// These errors always end a subscription.
var (
	errChanged  = errors.New("the columns have changed")
	errTooLarge = errors.New("the result is too large for a subscription")
)

// acquireRun waits for a free slot to run a statement. To release the slot, the caller receives from Engine.runs.
func (s *subscription) acquireRun(ctx context.Context) error {
	select {
	case s.engine.runs <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wait waits until it can receive from signal. It returns false if the subscription should end, either because ctx is
// done or because the subscription has had no readers for too long.
func (s *subscription) wait(ctx context.Context, signal <-chan struct{}) bool {
	for {
		left, unread := s.unreadTime()
		if unread && left <= 0 {
			if s.engine.leave(s) {
				return false
			}
			continue // a reader has joined in the meantime
		}
		if left <= 0 {
			left = s.engine.subs.IdleTime
		}
		look := time.NewTimer(left)
		select {
		case <-ctx.Done():
			look.Stop()
			return false
		case <-signal:
			look.Stop()
			return true
		case <-look.C:
		}
	}
}

// after returns a channel that is closed once d has passed.
func after(d time.Duration) <-chan struct{} {
	over := make(chan struct{})
	time.AfterFunc(d, func() { close(over) })
	return over
}

// unreadTime reports whether the subscription has no readers and, if so, how long it may remain
// without any.
func (s *subscription) unreadTime() (left time.Duration, unread bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.engine.subs.IdleTime - time.Since(s.idle), s.readers == 0
}

// endReason returns the reason why wait returned false, or nil if ctx is done.
func (s *subscription) endReason(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the server is stopping, which is not an error of the subscription
	}
	return bourse.Errorf(bourse.CodeNotFound, "nobody has read the subscription for %v", s.engine.subs.IdleTime)
}

// refresh runs the statement and makes the changes available to the readers. It returns the same errors as
// Engine.execute, and failed_precondition if the result's columns have changed.
func (s *subscription) refresh(ctx context.Context) (took time.Duration, err error) {
	e := s.engine
	if err := s.acquireRun(ctx); err != nil {
		return 0, err
	}
	began := time.Now()
	found := &collector{key: s.ask.key, limits: e.subs}
	err = e.execute(ctx, s.ask, e.subscribed(), found)
	<-e.runs
	took = time.Since(began)
	if err != nil {
		return took, err
	}
	return took, s.publish(found)
}

func (s *subscription) publish(found *collector) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.now == nil
	if !first && !slices.Equal(s.now.columns, found.names) {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "%w: subscribe again", errChanged)
	}
	now, changes := compare(s.now, found.names, found.at, found.rows, s.next)
	s.now = now
	for _, c := range changes {
		if c.op == opInsert {
			s.next++
		}
		if !first { // readers receive the first result as rows, not as changes
			s.history.add(c.line(s.history.last() + 1))
		}
	}
	if first || len(changes) > 0 {
		close(s.news)
		s.news = make(chan struct{})
	}
	return nil
}

// collector is the sink for a subscription's statement. It collects the whole result.
type collector struct {
	key    []string
	limits SubscriptionLimits
	names  []string
	at     []int
	rows   []record
	bytes  int
}

func (g *collector) columns(names []string) (err error) {
	g.names = names
	g.at, err = keyColumns(names, g.key)
	return err
}

func (g *collector) row(r *record) error {
	g.bytes += len(r.text)
	if len(g.rows) == g.limits.Rows || g.bytes > g.limits.Bytes {
		return bourse.Errorf(bourse.CodeInvalid, "%w: more than %d rows or %d bytes", errTooLarge, g.limits.Rows, g.limits.Bytes)
	}
	g.rows = append(g.rows, r.clone())
	return nil
}

// unwatchedTables lists tables that change with every commit and cannot be watched individually. A
// statement that reads one of them runs again whenever any table changes.
var unwatchedTables = wordSet("meta streams quarantine tombstones")

// watched returns the wire names of the tables to watch for a statement that reads the given tables. If all tables have
// to be watched, it returns nil and true. watched ignores SQL views, because the tables that a view reads are also
// listed.
func watched(tables map[string]bool) (names []string, everything bool) {
	for t := range tables {
		name, rows := strings.CutSuffix(t, "_rows")
		switch {
		case unwatchedTables[t]:
			return nil, true
		case rows, t == view.TableSites:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, false
}
