package nats

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	client "github.com/nats-io/nats.go"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// call is one that this end made and that waits for its answer. The link's
// lock guards what changes.
type call struct {
	number uint64
	to     Address
	sent   atomic.Bool // its request has left
	over   atomic.Bool // it has left the table
	seen   bool        // by the watch
	status int
	size   uint32
	have   []byte        // of the answer's body
	err    error         // why there is no answer
	done   chan struct{} // buffered; receives it when the call leaves the table
}

var (
	errNobody  = errors.New("nobody takes calls there")
	errClosing = errors.New("the link is closing")
	errAnother = errors.New("another server has its address")
	errBroken  = errors.New("the worker broke it off")
)

// fits reports whether a message of size bytes is small enough to be sent as
// one: well below the limit of NATS.
func (l *Link) fits(size int) bool { return int64(size) <= l.nats.MaxPayload()/2 }

// call sends one request to a worker and waits for its answer. Its errors are
// those of [fabric.Fabric.Call]; errNobody means that no one takes calls there
// and nothing was sent.
func (l *Link) call(ctx context.Context, to bourse.Member, at Address, request []byte) (fabric.Answer, error) {
	if err := ctx.Err(); err != nil {
		return fabric.Answer{}, fabric.Unsent(to, err)
	}
	c := &call{to: at, done: make(chan struct{}, 1)}
	subject, err := l.begin(c)
	if err != nil {
		return fabric.Answer{}, fabric.Unsent(to, err)
	}
	l.post(letter{to: subject, reply: l.inbox + number(c.number), data: request, call: c})
	select {
	case <-c.done:
	case <-ctx.Done():
		if l.end(c, ctx.Err()) {
			l.leave(c)
		} // else its end came at the same time
	}
	return c.outcome(ctx, to)
}

// outcome returns the result of a call that has ended.
func (c *call) outcome(ctx context.Context, to bourse.Member) (fabric.Answer, error) {
	var none fabric.Answer
	switch e, ok := errors.AsType[sendError](c.err); {
	case c.err == nil && c.status == statusAnother:
		return none, fabric.Unsent(to, errAnother)
	case c.err == nil:
		return fabric.Answer{Status: c.status, Body: c.have}, nil
	case ok && e.nothing():
		return none, fabric.Unsent(to, c.err)
	case errors.Is(c.err, errNobody):
		return none, c.err
	}
	return none, fabric.Lost(ctx, to, c.err)
}

// sendError is what went wrong when a request was sent.
type sendError struct{ error }

func (e sendError) Unwrap() error { return e.error }

// nothing reports whether nothing was sent.
func (e sendError) nothing() bool {
	return errors.Is(e, errDown) || errors.Is(e, client.ErrConnectionClosed) || errors.Is(e, client.ErrMaxPayload)
}

// begin enters a call into the link's table and returns the subject of its
// request.
func (l *Link) begin(c *call) (subject string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return "", errClosing
	}
	l.lastCall++
	c.number = l.lastCall
	l.mine[c.number] = c
	return l.meet(c.to).calls, nil
}

// end is finish for who does not hold the lock.
func (l *Link) end(c *call, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.finish(c, err)
}

// finish takes a call out of the table, with the reason why it has no answer;
// nil: it has one. It reports whether the call was there: only one end is the first.
// l.mu is held.
func (l *Link) finish(c *call, err error) bool {
	if l.mine[c.number] != c {
		return false
	}
	delete(l.mine, c.number)
	c.err = err
	c.over.Store(true)
	c.done <- struct{}{}
	return true
}

// leave notifies the worker that no one waits for its answer any more. It comes
// after the request.
func (l *Link) leave(c *call) {
	l.post(letter{to: l.calls(c.to), data: leaving(callID{l.own, c.number})})
}

// takeAnswer takes a message for one of our calls, by its number.
func (l *Link) takeAnswer(token string, m *client.Msg) {
	n, ok := parseNumber(token)
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.mine[n]
	switch {
	case !ok || n > l.lastCall:
		l.Strange.Add(1)
	case c == nil:
		l.Late.Add(1)
	case nobody(m):
		l.finish(c, errNobody)
	case !l.hearAnswer(c, m.Data):
		l.Strange.Add(1)
	}
}

// hearAnswer handles a message for a call. It reports whether it makes sense.
// l.mu is held.
func (l *Link) hearAnswer(c *call, b []byte) bool {
	if len(b) == 1 && callKind(b[0]) == callBroken {
		l.hear(c.to)
		l.finish(c, errBroken)
		return true
	}
	p, err := parsePart(b)
	if err != nil {
		return false
	}
	l.hear(c.to)
	if !c.add(&p) {
		l.finish(c, errLost)
	} else if len(c.have) == int(c.size) {
		l.finish(c, nil)
	}
	return true
}

// add adds a part. It reports whether it is the next one.
func (c *call) add(p *part) bool {
	if p.offset == 0 && c.status == 0 {
		c.status, c.size = p.status, p.size
		c.have = slices.Clip(p.data) // what comes after it in memory is not ours
		return true
	}
	if c.status != p.status || c.size != p.size || int(p.offset) != len(c.have) || len(p.data) == 0 {
		return false
	}
	c.have = append(c.have, p.data...)
	return true
}
