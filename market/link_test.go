package market_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// Verb is a kind of message.
type Verb string

// Kinds of messages, one for each method of a market.Trader.
const (
	Ask      Verb = "ask"
	Claim    Verb = "claim"
	Cancel   Verb = "cancel"
	Pullable Verb = "pullable"
)

// Call is a message to a worker.
type Call struct {
	Verb   Verb
	Worker bourse.WorkerID
	Order  bourse.OrderID
}

// Fault describes what happens to a message. The zero Fault delivers the message immediately.
type Fault struct {
	Unreachable bool          // the worker does not receive the message, and the sender gets an error
	LoseRequest bool          // the worker does not receive the message
	LoseReply   bool          // the worker acts on the message, but the sender gets no reply
	Reset       bool          // if there is no reply, the sender gets an error immediately; otherwise it waits
	Delay       time.Duration // delay before the worker receives the message
	ReplyDelay  time.Duration // delay before the sender receives the reply
	Repeat      time.Duration // time after which the worker receives the message again; 0: it does not
}

// Link is the connection of one broker to the cluster.
type Link struct {
	c   *Cluster
	cut chan struct{}
	one sync.Once
}

var _ market.Trader = (*Link)(nil)

// Link returns a connection for another broker.
func (c *Cluster) Link() *Link { return &Link{c: c, cut: make(chan struct{})} }

// Cut terminates the broker's calls, as if the broker had been killed. New calls fail. Messages
// that were sent earlier still arrive.
func (l *Link) Cut() { l.one.Do(func() { close(l.cut) }) }

// errLost is the error that the sender of a lost message gets.
var errLost = errors.New("connection reset")

// Ask implements market.Trader.
func (l *Link) Ask(ctx context.Context, to []bourse.Member, order *bourse.Order, answer func(bourse.Quote)) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range to {
		w, fault, err := l.dial(Ask, to[i].ID, order.ID)
		if err != nil {
			continue
		}
		if fault == (Fault{}) {
			q := w.quote(order)
			mu.Lock()
			answer(q)
			mu.Unlock()
			continue
		}
		o := *order
		wg.Go(func() {
			q, err := carry(ctx, l, fault, func() bourse.Quote { return w.quote(&o) })
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				answer(q)
			}
		})
	}
	wg.Wait()
}

type claimReply struct {
	fill    *bourse.Fill
	refusal *bourse.Refusal
	err     error
}

// Claim implements market.Trader.
func (l *Link) Claim(ctx context.Context, to bourse.Member, claim *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	w, fault, err := l.dial(Claim, to.ID, claim.Order.ID)
	if err != nil {
		return nil, nil, err
	}
	if fault == (Fault{}) {
		return w.claim(claim)
	}
	sent := *claim
	r, err := carry(ctx, l, fault, func() claimReply {
		fill, refusal, err := w.claim(&sent)
		return claimReply{fill, refusal, err}
	})
	if err != nil {
		return nil, nil, err
	}
	return r.fill, r.refusal, r.err
}

// Pullable implements market.Trader.
func (l *Link) Pullable(_ context.Context, to bourse.Member, _, _ string) *bourse.Refusal {
	w, _, err := l.dial(Pullable, to.ID, "")
	if err != nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lies == nil || w.lies.Pulls == nil {
		return nil
	}
	return w.lies.Pulls()
}

// Cancel implements market.Trader.
func (l *Link) Cancel(ctx context.Context, to bourse.Member, order bourse.OrderID) (bourse.Cancellation, error) {
	w, fault, err := l.dial(Cancel, to.ID, order)
	if err != nil {
		return bourse.Cancellation{}, err
	}
	if fault == (Fault{}) {
		return w.cancel(order), nil
	}
	return carry(ctx, l, fault, func() bourse.Cancellation { return w.cancel(order) })
}

// dial returns the worker that receives a message, and the message's fault.
func (l *Link) dial(verb Verb, id bourse.WorkerID, order bourse.OrderID) (*worker, Fault, error) {
	select {
	case <-l.cut:
		return nil, Fault{}, errLost
	default:
	}
	l.c.mu.Lock()
	l.c.calls[verb]++
	faults := l.c.faults
	l.c.mu.Unlock()
	var fault Fault
	if faults != nil {
		fault = faults(Call{verb, id, order})
	}
	w := l.c.workers[id]
	if w == nil || fault.Unreachable {
		return nil, fault, bourse.Errorf(bourse.CodeUnavailable, "worker %s: connection refused", id)
	}
	return w, fault, nil
}

// carry delivers a message to a worker and returns the reply. A message in flight arrives even if
// its sender no longer waits for the reply.
func carry[R any](ctx context.Context, l *Link, fault Fault, act func() R) (R, error) {
	reply, reset := make(chan R, 1), make(chan struct{})
	l.c.flying.Go(func() {
		time.Sleep(fault.Delay)
		var r R
		if !fault.LoseRequest {
			r = act()
			if fault.Repeat > 0 {
				l.c.flying.Go(func() {
					time.Sleep(fault.Repeat)
					act()
				})
			}
		}
		time.Sleep(fault.ReplyDelay)
		switch lost := fault.LoseRequest || fault.LoseReply; {
		case !lost:
			reply <- r
		case fault.Reset:
			close(reset)
		}
	})
	var none R
	select {
	case r := <-reply:
		return r, nil
	case <-reset:
		return none, errLost
	case <-l.cut:
		return none, errLost
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// Rates contains the probabilities of an unreliable network's faults.
type Rates struct {
	Lose    float64 // the request or the reply is lost
	Refuse  float64 // the connection is refused
	Delay   float64 // the request or the reply is delayed, which also changes the order of messages
	Repeat  float64
	Verbs   []Verb        // kinds of messages that are affected; empty: all
	Longest time.Duration // the longest delay
}

// Chaos returns random faults for [Cluster.Break], with the given rates. The faults depend only on
// rng and the order of the messages.
func Chaos(rng *rand.Rand, rates Rates) func(Call) Fault {
	var mu sync.Mutex
	return func(c Call) Fault {
		mu.Lock()
		defer mu.Unlock()
		var f Fault
		if len(rates.Verbs) > 0 && !slices.Contains(rates.Verbs, c.Verb) {
			return f
		}
		chance := func(p float64) bool { return rng.Float64() < p }
		some := func() time.Duration { return time.Duration(rng.Int64N(int64(rates.Longest) + 1)) }
		f.Unreachable = chance(rates.Refuse)
		if chance(rates.Lose) {
			f.LoseRequest = chance(0.5)
			f.LoseReply = !f.LoseRequest
			f.Reset = chance(0.5)
		}
		if chance(rates.Delay) {
			f.Delay = some()
		}
		if chance(rates.Delay) {
			f.ReplyDelay = some()
		}
		if chance(rates.Repeat) {
			f.Repeat = 1 + some()
		}
		return f
	}
}
