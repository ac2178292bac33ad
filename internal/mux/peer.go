package mux

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// peer is a server's end of a connection.
type peer struct {
	server  *Server
	handler Handler
	base    context.Context //nolint:containedctx // the parent of the handlers' contexts
	r       *reader
	w       writer

	mu    sync.Mutex
	calls map[uint64]*serverCall // nil if the connection has ended
	timer *time.Timer
}

// serverCall is a received call.
type serverCall struct {
	Call
	id     uint64
	from   *peer
	ctx    context.Context //nolint:containedctx // the handler's context, passed to the goroutine that serves the call
	cancel context.CancelCauseFunc

	// Guarded by the peer's mutex.
	left bool // whether the caller no longer waits for the answer
	lost bool // whether the caller is notified that there will be no answer, even if the handler returns one
}

// read reads frames until it has read a call that this goroutine must serve. By then, another
// goroutine has taken over reading. It returns nil if the connection has ended.
func (p *peer) read() *serverCall {
	for {
		now := false
		c, err := p.next()
		if err == nil && c != nil {
			if now, err = p.server.begin(c); err != nil && p.server.config.Refuse != nil {
				p.answer(c, p.server.config.Refuse(err))
				err = nil
			}
		}
		switch {
		case err != nil:
			p.fail(err)
			p.w.work.Wait()
			return nil
		case now:
			return c
		}
	}
}

// next reads one frame, which may be a call.
func (p *peer) next() (*serverCall, error) {
	f, err := p.r.next()
	if err != nil {
		return nil, err
	}
	switch f.verb {
	case verbCall:
		return p.takeCall(&f)
	case verbCancel:
		p.cancel(f.id)
	case verbPing:
		p.w.putAll(&frame{verb: verbPong}, nil)
	default:
		return nil, malformed([]byte(verbs[f.verb]))
	}
	return nil, nil
}

func (p *peer) takeCall(f *frame) (_ *serverCall, err error) {
	c := &serverCall{Call: Call{Subject: string(f.subject), Type: string(f.media)}, id: f.id, from: p}
	if f.deadline > 0 {
		c.Deadline = time.UnixMilli(f.deadline)
	}
	if c.Payload, err = p.r.take(f.length); err != nil {
		return nil, err
	}
	c.ctx, c.cancel = context.WithCancelCause(p.base)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.calls == nil:
		_, err = p.w.failed()
	case p.calls[c.id] != nil:
		err = fmt.Errorf("malformed frame: duplicate call %d", c.id)
	default:
		p.calls[c.id] = c
		p.w.contended.Store(len(p.calls) > 1 || p.r.buf.Buffered() > 0)
		return c, nil
	}
	c.cancel(nil)
	return nil, err
}

// cancel cancels a call whose caller no longer waits for the answer.
func (p *peer) cancel(id uint64) {
	p.mu.Lock()
	c := p.calls[id]
	if c != nil {
		c.left = true
		c.cancel(context.Canceled)
	}
	p.mu.Unlock()
	if c != nil && p.server.unqueue(c) {
		p.remove(c)
	}
}

func (p *peer) remove(c *serverCall) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, c.id)
}

// serve calls the handler and sends its answer.
func (p *peer) serve(c *serverCall) { p.answer(c, p.handler(c.ctx, &c.Call)) }

// answer sends the answer to a call if the caller still waits for it.
func (p *peer) answer(c *serverCall, a Answer) {
	p.mu.Lock()
	delete(p.calls, c.id)
	left, ok := c.left, !c.lost && p.server.config.Allow(&a)
	p.mu.Unlock()
	c.cancel(nil)
	switch {
	case left:
	case ok:
		p.w.putAll(&frame{verb: verbDone, id: c.id, status: a.Status, length: len(a.Body), media: []byte(a.Type)}, a.Body)
	default:
		p.w.putAll(&frame{verb: verbLost, id: c.id}, nil)
	}
}

// checkIdle ends the connection if nothing has arrived since the previous call to checkIdle.
func (p *peer) checkIdle() {
	if !p.r.active.Swap(false) {
		p.fail(errSilent)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls != nil {
		p.timer.Reset(p.server.config.IdleTimeout)
	}
}

// cut cancels all calls. The answers of canceled handlers would be meaningless, so once the
// handlers return, the callers are notified that there will be no answer.
func (p *peer) cut(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		c.lost = true
		c.cancel(why)
	}
}

// fail ends the connection and cancels its calls.
func (p *peer) fail(err error) {
	p.w.fail(err)
	p.mu.Lock()
	calls := p.calls
	p.calls = nil
	for _, c := range calls {
		c.left = true
		c.cancel(context.Canceled)
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	for _, c := range calls {
		p.server.unqueue(c)
	}
	p.server.remove(p)
}
