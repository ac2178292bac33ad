package publish

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/worker/state"
)

const (
	listenEvery = 250 * time.Millisecond // at most
	// However large the view is and however often it changes, listening takes
	// one part in listenPart of a processor, unless one look takes longer than
	// listenMost/listenPart.
	listenPart    = 20
	listenMost    = 10 * time.Second
	listenAtOnce  = 16 // cancellations: they share commits of the store
	listenTimeout = time.Minute
)

// Listener does what the view asks of the worker: it cancels orders whose
// cancellation could not be delivered, and keeps the records of apps. It
// belongs to the goroutine of Run.
type Listener struct {
	state     *state.State
	view      View
	publisher *Publisher
	cancel    func(ctx context.Context, id bourse.OrderID) error

	lost      <-chan struct{}             // closed when the view has lost what was published
	published bool                        // since then the publisher has published it again
	canceled  map[bourse.OrderID]struct{} // canceled here; those that the view still lists
	failures  int                         // in a row
}

// NewListener makes a Listener to the view of p, which has cancel cancel
// orders. It starts nothing.
func NewListener(p *Publisher, cancel func(ctx context.Context, id bourse.OrderID) error) *Listener {
	return &Listener{state: p.state, view: p.view, publisher: p, cancel: cancel, canceled: map[bourse.OrderID]struct{}{}}
}

// Run looks at once, for the worker may have been away, then after each
// change, until ctx ends.
func (l *Listener) Run(ctx context.Context) error {
	check := time.NewTicker(CheckEvery)
	defer check.Stop()
	l.lost = l.view.Lost()
	for {
		begin := time.Now()
		if again := l.look(ctx); again > 0 {
			state.Rest(ctx, again)
			if ctx.Err() != nil {
				return nil
			}
			continue
		}
		state.Rest(ctx, min(max(listenEvery, listenPart*time.Since(begin)), listenMost))
		select {
		case <-ctx.Done():
			return nil
		case <-l.view.Changed():
		case <-l.lost: // look sees it
		case <-check.C:
		}
	}
}

// look does all that the view asks for now. It returns how long to wait before
// the next attempt, 0 after success.
func (l *Listener) look(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	err := l.cancelListed(ctx)
	if err == nil { // else it is tried again soon, whatever the publisher does
		err = l.awaitPublisher(ctx)
	}
	if err == nil {
		err = l.shareApps(ctx)
	}
	if err == nil {
		l.failures = 0
		return 0
	}
	if errors.Is(ctx.Err(), context.Canceled) { // the daemon ends
		return 0
	}
	if l.failures++; l.failures == 1 { // then there is nothing new to say
		l.state.Log.Warn("read from view failed", "err", err)
	}
	return backoff(l.failures)
}

// awaitPublisher waits, at the start and whenever the view was lost, until the
// publisher has published all. The first update then may begin a new epoch of
// this worker, which removes its rows of the one before from every view: if it
// were about apps, the machines would be gone from all lists for a moment.
func (l *Listener) awaitPublisher(ctx context.Context) error {
	select {
	case <-l.lost:
		l.lost = l.view.Lost()
		l.published = false
	default:
	}
	if l.published {
		return nil
	}
	err := l.publisher.Await(ctx)
	l.published = err == nil
	return err
}

// cancelListed cancels the orders whose cancellation could not be delivered: the
// other half of invariant 7. Canceling is idempotent, and a cancellation that
// comes before its claim wins.
func (l *Listener) cancelListed(ctx context.Context) error {
	orders, err := l.view.Cancelled(ctx)
	if err != nil {
		return err
	}
	done := make([]error, len(orders))
	var group errgroup.Group
	group.SetLimit(listenAtOnce)
	for i, id := range orders {
		if _, ok := l.canceled[id]; ok {
			continue
		}
		group.Go(func() error {
			done[i] = l.cancel(ctx, id)
			return nil
		})
	}
	_ = group.Wait() // errors are in done
	canceled := make(map[bourse.OrderID]struct{}, len(orders))
	var failed error
	for i, id := range orders {
		if err := done[i]; err != nil && bourse.CodeOf(err) != bourse.CodeInvalid { // such an order can not be filled either
			failed = errors.Join(failed, err)
			continue
		}
		canceled[id] = struct{}{}
	}
	l.canceled = canceled
	return failed
}
