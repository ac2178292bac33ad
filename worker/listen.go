package worker

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
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

// listener does what the view asks of the worker: it cancels orders that
// nobody could tell it to cancel, and keeps the records of apps. It belongs to
// the goroutine of run.
type listener struct {
	w    *Worker
	view View

	lost     <-chan struct{}             // closed when the view has lost what was published
	told     bool                        // since then the publisher has told it again
	canceled map[bourse.OrderID]struct{} // canceled here; those that the view still lists
	failures int                         // in a row
}

func newListener(w *Worker, view View) *listener {
	return &listener{w: w, view: view, canceled: map[bourse.OrderID]struct{}{}}
}

// run looks at once, for the worker may have been away, then after each
// change, until ctx ends.
func (l *listener) run(ctx context.Context) error {
	check := time.NewTicker(publishCheck)
	defer check.Stop()
	l.lost = l.view.Lost()
	for {
		begin := time.Now()
		if again := l.look(ctx); again > 0 {
			l.w.rest(ctx, again)
			if ctx.Err() != nil {
				return nil
			}
			continue
		}
		l.w.rest(ctx, min(max(listenEvery, listenPart*time.Since(begin)), listenMost))
		select {
		case <-ctx.Done():
			return nil
		case <-l.view.Changed():
		case <-l.lost: // look sees it
		case <-check.C:
		}
	}
}

// look does all that the view asks for now. It gives how long to wait before
// the next attempt, 0 after success.
func (l *listener) look(ctx context.Context) time.Duration {
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
		l.w.log.Warn("listen to the view", "err", err)
	}
	return publishBackoff(l.failures)
}

// awaitPublisher waits, at the start and whenever the view was lost, until the
// publisher has told all. Our first word then may begin a new life of ours,
// which ends our rows of the one before in every view: if it were about apps,
// our machines would be gone from all lists for a moment.
func (l *listener) awaitPublisher(ctx context.Context) error {
	select {
	case <-l.lost:
		l.lost = l.view.Lost()
		l.told = false
	default:
	}
	if l.told {
		return nil
	}
	err := l.w.published(ctx)
	l.told = err == nil
	return err
}

// cancelListed cancels the orders that this worker could not be told to cancel: the
// other half of invariant 7. Canceling is idempotent, and a cancellation that
// comes before its claim wins.
func (l *listener) cancelListed(ctx context.Context) error {
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
			_, done[i] = l.w.cancelFor(ctx, id, "the view")
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
