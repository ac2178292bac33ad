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

// void is a worker where an order must not stay filled, and where that could
// not be ensured at once.
type void struct {
	order bourse.OrderID
	at    bourse.Member
	rival *rival // nil: cancel it there, whatever it has
	until time.Time
	known bool // to the worker, once it is back: it is in Config.Voids
}

// rival is a fill that is kept unless the worker turns out to hold an older
// one.
type rival struct {
	order *bourse.Order
	fill  *bourse.Fill
	at    bourse.Member
}

// errSilent is why a rival's worker is asked again.
var errSilent = errors.New("no answer")

// voids is the bounded queue of what Run retries.
type voids struct {
	cfg  *Config
	wake chan struct{} // holds one: something was added

	mu     sync.Mutex
	jobs   []void // oldest first
	away   map[bourse.WorkerID]absence
	jitter *rand.Rand
}

// absence is a worker that could not be reached. All its voids wait together:
// each on its own would only find out the same.
type absence struct {
	tries int
	next  time.Time
}

// Times of a retry.
const (
	voidTry        = 2 * time.Second // for one try
	voidBackoff    = 100 * time.Millisecond
	voidBackoffMax = 10 * time.Second
	voidParallel   = 16 // workers at once
)

func newVoids(cfg *Config, jitter *rand.Rand) *voids {
	return &voids{cfg: cfg, wake: make(chan struct{}, 1), away: map[bourse.WorkerID]absence{}, jitter: jitter}
}

// add queues v, which failed with cause.
func (s *voids) add(v void, cause error) {
	now := time.Now()
	v.until = now.Add(s.cfg.VoidWithin)
	if v.known {
		v.until = now.Add(s.cfg.VoidWithin / 10)
	}
	s.cfg.Log.Warn("cancellation not delivered, will be retried", attrs(&v, cause)...)
	s.mu.Lock()
	if _, known := s.away[v.at.ID]; !known {
		s.away[v.at.ID] = absence{next: now.Add(voidBackoff)}
	}
	var oldest *void
	if len(s.jobs) >= s.cfg.VoidQueue {
		o := s.jobs[0]
		oldest, s.jobs = &o, s.jobs[1:]
	}
	s.jobs = append(s.jobs, v)
	s.mu.Unlock()
	if oldest != nil {
		s.givenUp(oldest, "too many wait", nil)
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func attrs(v *void, cause error) []any {
	a := []any{slog.String("order", string(v.order)), slog.String("worker", string(v.at.ID))}
	if cause != nil {
		a = append(a, slog.Any("err", cause))
	}
	return a
}

// run retries until ctx ends. Its goroutines have then ended.
func (s *voids) run(ctx context.Context) error {
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

// takeDue removes what is due, by worker, and returns how long the rest can
// wait.
func (s *voids) takeDue(now time.Time) (map[bourse.WorkerID][]void, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := map[bourse.WorkerID][]void{}
	wait := time.Hour
	rest := s.jobs[:0]
	for _, v := range s.jobs {
		if left := s.away[v.at.ID].next.Sub(now); left > 0 {
			wait = min(wait, left)
			rest = append(rest, v)
			continue
		}
		due[v.at.ID] = append(due[v.at.ID], v)
	}
	clear(s.jobs[len(rest):])
	s.jobs = rest
	if len(due) == 0 && len(rest) == 0 {
		clear(s.away)
	}
	return due, wait
}

// deliver tries each worker's voids one after the other, up to the first that
// fails.
func (s *voids) deliver(ctx context.Context, due map[bourse.WorkerID][]void) {
	var wg sync.WaitGroup
	room := make(chan struct{}, voidParallel)
	for id, list := range due {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			s.publish(ctx, list)
			for i := range list {
				if away, err := s.try(ctx, &list[i]); err != nil {
					s.putBack(list[i:], err)
					s.missed(away)
					return
				}
			}
			s.reached(id)
		})
	}
	wg.Wait()
}

func (s *voids) reached(id bourse.WorkerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.away, id)
}

// missed makes a worker's voids wait, longer each time.
func (s *voids) missed(id bourse.WorkerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.away[id]
	a.tries++
	backoff := min(voidBackoff<<min(a.tries, 10), voidBackoffMax)
	a.next = time.Now().Add(backoff + time.Duration(s.jitter.Int64N(int64(backoff/4))))
	s.away[id] = a
}

// putBack queues voids again, but those whose time is over.
func (s *voids) putBack(list []void, cause error) {
	now := time.Now()
	var over []void
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
		s.givenUp(&over[i], "the worker is away", cause)
	}
}

// try delivers v once. After an error v is what is still to be done, and away
// the worker that could not be reached.
func (s *voids) try(ctx context.Context, v *void) (away bourse.WorkerID, err error) {
	ctx, cancel := context.WithTimeout(ctx, voidTry)
	defer cancel()
	if v.rival != nil {
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

// compare asks the worker whether it holds the order too. If so, v becomes
// the cancellation of the younger fill, by the rule of once.go.
func (s *voids) compare(ctx context.Context, v *void) (done bool, err error) {
	r := v.rival
	quotes := hear(ctx, s.cfg.Trader, s.cfg.QuoteWithin, r.order, []bourse.Member{v.at})
	q := &quotes[0]
	if q.Worker == "" {
		return false, errSilent
	}
	if vet(q, &v.at, r.order, nil); q.Fill() == nil {
		return true, nil
	}
	if older(q.Fill(), r.fill) {
		v.at = r.at
	}
	v.rival = nil
	return false, nil
}
