package nats

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	client "github.com/nats-io/nats.go"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// Headers of answers to orders.
const (
	headerFrom    = "Bourse-From"    // the worker's id
	headerFailure = "Bourse-Failure" // status text of the failure if the worker returned no quote; the body is a fabric.Failure
)

const (
	quoteTimeout = 5 * time.Second // time limit for a quote; the market does not wait longer
	maxQuotes    = 256             // maximum number of orders that are answered concurrently; further orders are dropped
)

// subscription is a worker's subscription to orders.
type subscription struct {
	id      bourse.WorkerID
	handler http.Handler
	slots   chan struct{}
	log     *slog.Logger
}

// Subscribe subscribes to orders sent to the worker's region or to the worker alone, and answers them with the worker's
// handler until withdraw is called. It must be called at most once.
func (l *Link) Subscribe(id bourse.WorkerID, region bourse.Region, handler http.Handler) (withdraw func(), err error) {
	l.mu.Lock()
	l.serves = &subscription{id: id, handler: handler, slots: make(chan struct{}, maxQuotes), log: l.config.Log}
	l.mu.Unlock()
	sub, err := l.subscribe(l.orders(region), l.answerOrder)
	if err != nil {
		return nil, err
	}
	if l.nats.IsConnected() {
		_ = l.nats.FlushTimeout(flushTimeout) // wait until NATS has processed the subscription
	}
	return func() {
		_ = sub.Unsubscribe() // fails only if NATS is not connected, in which case nothing is received anyway
		l.mu.Lock()
		defer l.mu.Unlock()
		l.serves = nil
	}, nil
}

// answerOrder answers an order in the background.
func (l *Link) answerOrder(m *client.Msg) {
	if m.Reply == "" {
		l.Malformed.Add(1) // there is no subject to send the answer to
		return
	}
	if len(m.Data) > fabric.MaxBody {
		l.Oversized.Add(1)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.serves == nil {
		return
	}
	o := l.serves
	select {
	case o.slots <- struct{}{}:
	default:
		l.Dropped.Add(1)
		return
	}
	l.work.Go(func() {
		defer func() { <-o.slots }()
		answer := o.answer(m.Data)
		answer.Subject = m.Reply
		if l.nats.PublishMsg(answer) != nil {
			l.Dropped.Add(1)
		}
	})
}

// answer passes an order to the worker's handler and returns the answer to
// send.
func (o *subscription) answer(order []byte) *client.Msg {
	ctx, cancel := context.WithTimeout(context.Background(), quoteTimeout)
	defer cancel()
	reply := client.NewMsg("")
	reply.Header.Set(headerFrom, string(o.id))
	m := fabric.QuoteMessage(order)
	a := fabric.ServeMessage(ctx, new(http.Request), &m, o.handler, o.log)
	if reply.Data = a.Body; a.Status > 299 {
		reply.Header.Set(headerFailure, http.StatusText(a.Status))
	}
	return reply
}
