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

// subscription is a statement whose result is kept up to date. Its readers
// share it. Only its goroutine writes what is under mu, but for readers.
type subscription struct {
	engine *Engine
	id     string
	asked  string // the key in Engine.byAsked
	ask    question

	mu      sync.Mutex
	now     *result // nil until the statement was run once
	history history
	next    int64         // the next row's number
	ended   error         // why it ended; nil while it goes on
	news    chan struct{} // closed and replaced at each change, and at the end
	readers int
	idle    time.Time // since when it has no readers
}

func newSubscription(e *Engine, id, asked string, q question) *subscription {
	return &subscription{
		engine: e, id: id, asked: asked, ask: q,
		history: history{limit: e.subs.History, first: 1}, next: 1, news: make(chan struct{}), idle: time.Now(),
	}
}

// attempts is how often in a row a run may fail before the subscription ends.
const attempts = 5

// run keeps the result up to date until ctx ends, no one reads it, or it
// cannot go on.
func (s *subscription) run(ctx context.Context) {
	err := s.follow(ctx)
	if ctx.Err() != nil {
		err = bourse.Errorf(bourse.CodeUnavailable, "the server is stopping")
	}
	s.end(err)
}

// follow returns the error that ends the subscription, nil when ctx ended.
func (s *subscription) follow(ctx context.Context) error {
	changed, stop, err := s.watch(ctx)
	if err != nil {
		return err
	}
	defer stop()
	for failed := 0; ; {
		took, err := s.refresh(ctx)
		// A slow statement takes a tenth of a processor at most.
		pause := max(s.engine.subs.Pause, 10*took)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			failed = 0
		case s.hopeless(err, failed):
			return err
		default:
			failed++
			pause = (20 * s.engine.subs.Pause) << min(failed, attempts)
		}
		if !s.wait(ctx, after(pause)) || failed == 0 && !s.wait(ctx, changed) {
			return s.unread(ctx)
		}
	}
}

// watch begins to listen for changes of what the statement reads.
func (s *subscription) watch(ctx context.Context) (changed <-chan struct{}, stop func(), err error) {
	e := s.engine
	if err := s.turn(ctx); err != nil {
		return nil, nil, err
	}
	tables, err := e.tables(ctx, s.ask, e.subscribed())
	<-e.runs
	if err != nil {
		return nil, nil, err
	}
	names, everything := watched(tables)
	if len(names) == 0 && !everything {
		return nil, func() {}, nil // it reads nothing that changes
	}
	changed, stop = e.source.Watch(names...)
	return changed, stop, nil
}

// hopeless reports whether the subscription ends by err, the failed-th in a row
// from 0. Most pass by themselves: while the view's file is made again it is
// away, or without its tables.
func (s *subscription) hopeless(err error, failed int) bool {
	s.mu.Lock()
	first := s.now == nil
	s.mu.Unlock()
	switch {
	case first, errors.Is(err, errChanged), errors.Is(err, errTooMuch):
		return true
	case bourse.CodeOf(err) == bourse.CodeUnavailable:
		return false
	default:
		return failed+1 >= attempts
	}
}

// Why a subscription cannot go on whatever comes.
var (
	errChanged = errors.New("the columns have changed")
	errTooMuch = errors.New("the result is too much for a subscription")
)

// turn waits for a place among the statements that run; it is given back by
// receiving from Engine.runs.
func (s *subscription) turn(ctx context.Context) error {
	select {
	case s.engine.runs <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wait waits for until. It gives false when the subscription should end: ctx
// did, or no one reads it any more.
func (s *subscription) wait(ctx context.Context, until <-chan struct{}) bool {
	for {
		left, unread := s.lonely()
		if unread && left <= 0 {
			if s.engine.leave(s) {
				return false
			}
			continue // someone came in between
		}
		if left <= 0 {
			left = s.engine.subs.Linger
		}
		look := time.NewTimer(left)
		select {
		case <-ctx.Done():
			look.Stop()
			return false
		case <-until:
			look.Stop()
			return true
		case <-look.C:
		}
	}
}

// after returns a channel that is closed when d has passed.
func after(d time.Duration) <-chan struct{} {
	over := make(chan struct{})
	time.AfterFunc(d, func() { close(over) })
	return over
}

// lonely returns whether no one reads it, and how long it may go on so.
func (s *subscription) lonely() (left time.Duration, unread bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.engine.subs.Linger - time.Since(s.idle), s.readers == 0
}

// unread is why a wait ended.
func (s *subscription) unread(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the server stops: that is no fault of the subscription
	}
	return bourse.Errorf(bourse.CodeNotFound, "no one has read the subscription for %v", s.engine.subs.Linger)
}

// refresh runs the statement and tells the readers what has changed. Codes: as
// Engine.execute, and failed_precondition when the columns are others now.
func (s *subscription) refresh(ctx context.Context) (took time.Duration, err error) {
	e := s.engine
	if err := s.turn(ctx); err != nil {
		return 0, err
	}
	began := time.Now()
	found := &gathered{key: s.ask.key, limits: e.subs}
	err = e.execute(ctx, s.ask, e.subscribed(), found)
	<-e.runs
	took = time.Since(began)
	if err != nil {
		return took, err
	}
	return took, s.publish(found)
}

func (s *subscription) publish(found *gathered) error {
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
		if !first { // those who begin get the rows themselves
			s.history.add(c.line(s.history.last() + 1))
		}
	}
	if first || len(changes) > 0 {
		close(s.news)
		s.news = make(chan struct{})
	}
	return nil
}

// gathered is the sink of a subscription: the whole result.
type gathered struct {
	key    []string
	limits SubscriptionLimits
	names  []string
	at     []int
	rows   []record
	bytes  int
}

func (g *gathered) columns(names []string) (err error) {
	g.names = names
	g.at, err = keyColumns(names, g.key)
	return err
}

func (g *gathered) row(r *record) error {
	g.bytes += len(r.text)
	if len(g.rows) == g.limits.Rows || g.bytes > g.limits.Bytes {
		return bourse.Errorf(bourse.CodeInvalid, "%w: more than %d rows or %d bytes", errTooMuch, g.limits.Rows, g.limits.Bytes)
	}
	g.rows = append(g.rows, r.clone())
	return nil
}

// bookkeeping are tables that change with every commit.
var bookkeeping = words("meta streams quarantine tombstones")

// watched returns the names on the wire of the tables that a statement reads;
// everything says that it hangs on all of them. The SQL views among them are
// left out: what they read is named, too.
func watched(tables map[string]bool) (names []string, everything bool) {
	for t := range tables {
		name, rows := strings.CutSuffix(t, "_rows")
		switch {
		case bookkeeping[t]:
			return nil, true
		case rows, t == view.TableSites:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, false
}
