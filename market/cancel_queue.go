package market

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// pendingCancel is a cancellation that has not been delivered to its worker yet.
type pendingCancel struct {
	order     bourse.OrderID
	at        bourse.Member
	competing *competingFill // if set, the worker may also have filled the order, and only the younger fill is canceled; nil: cancel unconditionally
	until     time.Time
	known     bool // whether the cancellation is in Config.Cancellations, where the worker will find it
}

// competingFill is a known fill of an order that the pendingCancel's worker may have filled as well. If that worker has
// filled the order, only the older of the two fills is kept.
type competingFill struct {
	order *bourse.Order
	fill  *bourse.Fill
	at    bourse.Member
}

// errNoAnswer is the logged cause if a worker did not say whether it has filled the order and must be asked again.
var errNoAnswer = errors.New("no answer")

// cancelQueue is a queue of cancellations that Run retries. Its length is limited.
type cancelQueue struct {
	cfg  *Config
	wake chan struct{} // receives a value when a cancellation has been added; has capacity 1

	mu          sync.Mutex
	jobs        []pendingCancel // oldest first
	unreachable map[bourse.WorkerID]workerBackoff
	jitter      *rand.Rand
}

// workerBackoff is the backoff for an unreachable worker. All cancellations for the worker share it, because they would
// all fail the same way.
type workerBackoff struct {
	tries int
	next  time.Time
}

// Timing and concurrency of retries.
const (
	cancelTimeout    = 2 * time.Second // time limit for one attempt
	cancelBackoff    = 100 * time.Millisecond
	cancelBackoffMax = 10 * time.Second
	cancelParallel   = 16 // number of workers that are called at the same time
)

func newCancelQueue(cfg *Config, jitter *rand.Rand) *cancelQueue {
	return &cancelQueue{cfg: cfg, wake: make(chan struct{}, 1), unreachable: map[bourse.WorkerID]workerBackoff{}, jitter: jitter}
}

// add queues v for a retry after its delivery has failed. It logs cause, the
// reason for the failure.
func (s *cancelQueue) add(v pendingCancel, cause error) {
	now := time.Now()
	v.until = now.Add(s.cfg.CancelTimeout)
	if v.known {
		v.until = now.Add(s.cfg.CancelTimeout / 10)
	}
	s.cfg.Log.Warn("deliver cancellation failed, will retry", attrs(&v, cause)...)
	s.mu.Lock()
	if _, known := s.unreachable[v.at.ID]; !known {
		s.unreachable[v.at.ID] = workerBackoff{next: now.Add(cancelBackoff)}
	}
	var oldest *pendingCancel
	if len(s.jobs) >= s.cfg.CancelQueue {
		o := s.jobs[0]
		oldest, s.jobs = &o, s.jobs[1:]
	}
	s.jobs = append(s.jobs, v)
	s.mu.Unlock()
	if oldest != nil {
		s.logAbandoned(oldest, "queue full", nil)
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func attrs(v *pendingCancel, cause error) []any {
	a := []any{slog.String("order", string(v.order)), slog.String("worker", string(v.at.ID))}
	if cause != nil {
		a = append(a, slog.Any("err", cause))
	}
	return a
}

// run retries cancellations until ctx is done. When it returns, all goroutines that it has started
// have ended.
func (s *cancelQueue) run(ctx context.Context) error {
	for ctx.Err() == nil {
		due, wait := s.takeDue(time.Now())
		if len(due) > 0 {
			s.deliver(ctx, due)
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// takeDue removes the due cancellations from the queue and returns them, grouped by worker.
// It also returns the time until the next cancellation is due.
func (s *cancelQueue) takeDue(now time.Time) (map[bourse.WorkerID][]pendingCancel, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := map[bourse.WorkerID][]pendingCancel{}
	wait := time.Hour
	rest := s.jobs[:0]
	for _, v := range s.jobs {
		if left := s.unreachable[v.at.ID].next.Sub(now); left > 0 {
			wait = min(wait, left)
			rest = append(rest, v)
			continue
		}
		due[v.at.ID] = append(due[v.at.ID], v)
	}
	clear(s.jobs[len(rest):])
	s.jobs = rest
	if len(due) == 0 && len(rest) == 0 {
		clear(s.unreachable)
	}
	return due, wait
}

// deliver tries to deliver cancellations, in parallel for different workers. For each worker, it
// delivers them one after the other until one fails.
func (s *cancelQueue) deliver(ctx context.Context, due map[bourse.WorkerID][]pendingCancel) {
	var wg sync.WaitGroup
	room := make(chan struct{}, cancelParallel)
	for id, list := range due {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			s.publish(ctx, list)
			for i := range list {
				if away, err := s.deliverOnce(ctx, &list[i]); err != nil {
					s.putBack(list[i:], err)
					s.recordFailure(away)
					return
				}
			}
			s.recordSuccess(id)
		})
	}
	wg.Wait()
}

func (s *cancelQueue) recordSuccess(id bourse.WorkerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unreachable, id)
}

// recordFailure increases a worker's backoff after a failure.
func (s *cancelQueue) recordFailure(id bourse.WorkerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.unreachable[id]
	a.tries++
	backoff := min(cancelBackoff<<min(a.tries, 10), cancelBackoffMax)
	a.next = time.Now().Add(backoff + time.Duration(s.jitter.Int64N(int64(backoff/4))))
	s.unreachable[id] = a
}

// putBack puts cancellations back into the queue, except those that have expired.
func (s *cancelQueue) putBack(list []pendingCancel, cause error) {
	now := time.Now()
	var over []pendingCancel
	s.mu.Lock()
	for _, v := range list {
		if now.After(v.until) {
			over = append(over, v)
			continue
		}
		s.jobs = append(s.jobs, v)
	}
	s.mu.Unlock()
	for i := range over {
		s.logAbandoned(&over[i], "worker unreachable", cause)
	}
}

// deliverOnce tries to deliver the cancellation v once. If this fails, it updates v to describe the remaining work, and
// returns the worker that could not be reached.
func (s *cancelQueue) deliverOnce(ctx context.Context, v *pendingCancel) (away bourse.WorkerID, err error) {
	ctx, cancel := context.WithTimeout(ctx, cancelTimeout)
	defer cancel()
	if v.competing != nil {
		if done, err := s.compare(ctx, v); done || err != nil {
			return v.at.ID, err
		}
	}
	if _, err := s.cfg.Trader.Cancel(ctx, v.at, v.order); err != nil {
		return v.at.ID, err
	}
	s.cfg.Log.Info("late cancellation delivered", attrs(v, nil)...)
	return "", nil
}

// compare asks v's worker whether it has also filled the order. If not, done is true, because nothing needs to be
// canceled. Otherwise, compare changes v to cancel the younger fill, according to the rule in place_once.go.
func (s *cancelQueue) compare(ctx context.Context, v *pendingCancel) (done bool, err error) {
	r := v.competing
	quotes := collectQuotes(ctx, s.cfg.Trader, s.cfg.QuoteTimeout, r.order, []bourse.Member{v.at})
	q := &quotes[0]
	if q.Worker == "" {
		return false, errNoAnswer
	}
	if checkQuote(q, &v.at, r.order, nil); q.Fill() == nil {
		return true, nil
	}
	if precedes(q.Fill(), r.fill) {
		v.at = r.at
	}
	v.competing = nil
	return false, nil
}
