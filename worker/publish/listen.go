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
	minListenDelay = 250 * time.Millisecond // minimum interval between two reads of the view
	// No matter how large the view is and how often it changes, reading it takes up at most 1/listenDivisor of a CPU,
	// unless a single read takes longer than maxListenDelay/listenDivisor.
	listenDivisor     = 20
	maxListenDelay    = 10 * time.Second
	cancelConcurrency = 16 // maximum number of concurrent cancellations; they can share one commit
	listenTimeout     = time.Minute
)

// Listener carries out requests that it finds in the view: it cancels orders if brokers could not deliver the
// cancellations, and stores apps' records. Only the goroutine that calls Run may use its fields.
type Listener struct {
	state     *state.State
	view      View
	publisher *Publisher
	cancel    func(ctx context.Context, id bourse.OrderID) error

	lost      <-chan struct{}             // closed when the view has lost the rows that the worker has published
	published bool                        // whether the publisher has published everything since the view was lost
	canceled  map[bourse.OrderID]struct{} // orders that were canceled here and that the view still lists
	failures  int                         // number of consecutive failures
}

// NewListener returns a Listener for p's view. It calls cancel to cancel an order. The Listener does nothing until Run
// is called.
func NewListener(p *Publisher, cancel func(ctx context.Context, id bourse.OrderID) error) *Listener {
	return &Listener{state: p.state, view: p.view, publisher: p, cancel: cancel, canceled: map[bourse.OrderID]struct{}{}}
}

// Run carries out the requests in the view, until ctx is done. It reads the view once at the
// beginning, because requests may have arrived while the worker was down, and then after each
// change and every CheckInterval.
func (l *Listener) Run(ctx context.Context) error {
	check := time.NewTicker(CheckInterval)
	defer check.Stop()
	l.lost = l.view.RowsLost()
	for {
		begin := time.Now()
		if again := l.readView(ctx); again > 0 {
			state.Sleep(ctx, again)
			if ctx.Err() != nil {
				return nil
			}
			continue
		}
		state.Sleep(ctx, min(max(minListenDelay, listenDivisor*time.Since(begin)), maxListenDelay))
		select {
		case <-ctx.Done():
			return nil
		case <-l.view.Changed():
		case <-l.lost: // the next call to readView handles the loss
		case <-check.C:
		}
	}
}

// readView carries out all requests in the view. It returns 0 if it succeeded, and otherwise the delay before the next
// attempt.
func (l *Listener) readView(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	err := l.cancelListed(ctx)
	if err == nil { // the publisher may take a long time, so retry failed cancellations without waiting for it
		err = l.awaitPublisher(ctx)
	}
	if err == nil {
		err = l.shareApps(ctx)
	}
	if err == nil {
		l.failures = 0
		return 0
	}
	if errors.Is(ctx.Err(), context.Canceled) { // the daemon is stopping
		return 0
	}
	if l.failures++; l.failures == 1 { // log only the first of several failures
		l.state.Log.Warn("read from view failed", "err", err)
	}
	return backoff(l.failures)
}

// awaitPublisher waits until the publisher has published everything. This is necessary at startup and after the view
// was lost, because the first update may begin a new epoch, which removes the worker's old rows from every view. If
// that update contained only apps, the worker's machines would briefly disappear from all lists.
func (l *Listener) awaitPublisher(ctx context.Context) error {
	select {
	case <-l.lost:
		l.lost = l.view.RowsLost()
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

// cancelListed cancels the orders whose cancellations brokers could not deliver. Canceling is idempotent. Even if a
// cancellation arrives before its order's claim, the cancellation wins (invariant 7).
func (l *Listener) cancelListed(ctx context.Context) error {
	orders, err := l.view.Canceled(ctx)
	if err != nil {
		return err
	}
	done := make([]error, len(orders))
	var group errgroup.Group
	group.SetLimit(cancelConcurrency)
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
		if err := done[i]; err != nil && bourse.CodeOf(err) != bourse.CodeInvalid { // an order with an invalid id can never be filled
			failed = errors.Join(failed, err)
			continue
		}
		canceled[id] = struct{}{}
	}
	l.canceled = canceled
	return failed
}
