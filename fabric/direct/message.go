package direct

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

var _ fabric.Messenger = (*Fabric)(nil)

// waiter is a call by itself, with its channel. A fabric keeps them.
type waiter struct {
	call
	own chan *call
}

func (f *Fabric) waiter() *waiter {
	if w, ok := f.waiters.Get().(*waiter); ok {
		return w
	}
	return &waiter{own: make(chan *call, 1)}
}

// Send sends one request as a message, over the connection of calls to its
// worker; see [fabric.Messenger].
func (f *Fabric) Send(ctx context.Context, to bourse.Member, m *fabric.Message) (a fabric.Answer, sent bool, err error) {
	if err := ctx.Err(); err != nil {
		return fabric.Answer{}, false, fabric.Unsent(to, err)
	}
	if !sendable(m) {
		return fabric.Answer{}, false, nil
	}
	w := f.waiter()
	defer func() {
		w.call = call{}
		f.waiters.Put(w)
	}()
	for range 2 { // the first connection may just have ended
		l, err := f.lines.get(ctx, &to)
		if err != nil {
			return fabric.Answer{}, false, fabric.Unsent(to, err)
		}
		if l == nil {
			return fabric.Answer{}, false, nil
		}
		w.call = call{done: w.own}
		flush, crowd, err := l.begin(&w.call, m)
		if errors.Is(err, errOver) {
			l.ended()
			continue
		}
		if err != nil {
			return fabric.Answer{}, false, nil
		}
		if flush {
			if crowd {
				yield()
			}
			l.flush()
		}
		select {
		case <-w.own:
		case <-ctx.Done():
			if l.leave(&w.call) {
				return fabric.Answer{}, true, fabric.Lost(ctx, to, ctx.Err())
			}
			<-w.own // its outcome came at the same time
		}
		a, err = w.outcome(ctx, to)
		return a, true, err
	}
	return fabric.Answer{}, false, nil
}

// outcome returns the result of a call that has ended.
func (c *call) outcome(ctx context.Context, to bourse.Member) (fabric.Answer, error) {
	switch {
	case c.err == nil && c.status == http.StatusMisdirectedRequest:
		return fabric.Answer{}, fabric.Unsent(to, errAnother)
	case c.err == nil:
		return fabric.Answer{Status: c.status, Body: c.body}, nil
	case c.unsent:
		return fabric.Answer{}, fabric.Unsent(to, c.err)
	}
	return fabric.Answer{}, fabric.Lost(ctx, to, c.err)
}

// question is an order that is being asked about.
type question struct {
	to     []bourse.Member
	calls  []call  // by to
	lines  []*line // the same; nil: it is asked another way
	done   chan *call
	open   int // calls in progress
	others []*bourse.Member
}

// Ask puts an order to many workers side by side; see [fabric.Fabric].
func (f *Fabric) Ask(ctx context.Context, to []bourse.Member, order *bourse.Order, answer func(bourse.Quote)) {
	body, err := fabric.EncodeOrder(order)
	if err != nil || len(to) == 0 || ctx.Err() != nil {
		return // an order that cannot be written down has no answers
	}
	m := fabric.QuoteMessage(body)
	q := &question{to: to, calls: make([]call, len(to)), lines: make([]*line, len(to)), done: make(chan *call, len(to))}
	f.put(q, &m)
	var mu sync.Mutex
	one := func(quote bourse.Quote) {
		mu.Lock()
		defer mu.Unlock()
		answer(quote)
	}
	var wg sync.WaitGroup
	for i, m := range q.others {
		if q.open == 0 && i == len(q.others)-1 {
			f.askOne(ctx, m, body, one) // this goroutine would only wait
			break
		}
		wg.Go(func() { f.askOne(ctx, m, body, one) })
	}
	q.await(ctx, one)
	wg.Wait()
}

// put sends the order to all workers that take calls and have a connection;
// the others are left for other ways.
func (f *Fabric) put(q *question, m *fabric.Message) {
	var first [8]*line
	flushes, crowded := first[:0], false
	for i := range q.to {
		l := f.lines.now(&q.to[i])
		if l == nil || !sendable(m) {
			q.others = append(q.others, &q.to[i])
			continue
		}
		c := &q.calls[i]
		c.of, c.done = i, q.done
		flush, crowd, err := l.begin(c, m)
		if err != nil {
			q.others = append(q.others, &q.to[i])
			continue
		}
		q.lines[i] = l
		q.open++
		if flush {
			flushes = append(flushes, l)
			crowded = crowded || crowd
		}
	}
	if crowded {
		yield()
	}
	for _, l := range flushes {
		l.flush()
	}
}

// await receives the answers to calls until all have come or ctx ends.
func (q *question) await(ctx context.Context, answer func(bourse.Quote)) {
	for q.open > 0 {
		select {
		case c := <-q.done:
			q.open--
			q.lines[c.of] = nil
			if c.err != nil || c.status > 299 || ctx.Err() != nil {
				continue // missing, for any reason
			}
			if quote, err := fabric.DecodeQuote(q.to[c.of], c.body); err == nil {
				answer(quote)
			}
		case <-ctx.Done():
			for i, l := range q.lines {
				if l != nil {
					l.leave(&q.calls[i])
				}
			}
			return
		}
	}
}

// askOne asks a worker that had no connection of calls.
func (f *Fabric) askOne(ctx context.Context, to *bourse.Member, order []byte, answer func(bourse.Quote)) {
	var quote bourse.Quote
	m := fabric.QuoteMessage(order)
	a, sent, err := f.Send(ctx, *to, &m)
	switch {
	case err != nil || sent && a.Status > 299:
		return
	case sent:
		quote, err = fabric.DecodeQuote(*to, a.Body)
	default:
		quote, err = fabric.AskOne(ctx, f.Call, *to, order)
	}
	if err == nil && ctx.Err() == nil {
		answer(quote)
	}
}
