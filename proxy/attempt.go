package proxy

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/trace"
	"github.com/bourse-dev/bourse/proxy/route"
)

// attempts sends a request to one machine after the other until one has a reply.
type attempts struct{ p *Proxy }

// try is one attempt.
type try struct {
	to      route.Backend    // zero: none was free
	missed  bourse.MachineID // that was preferred and not chosen
	turn    Turn
	way     Way
	unused  func() // ends the request's use of the way
	backend *backend
	conn    *counted // that the request was sent on
	stage   stage
	sent    bool // a byte may have reached the machine
	early   bool // a 1xx reply has reached the client
	err     error
}

// stage says how far an attempt came.
type stage string

const (
	choosing stage = "choose"
	readying stage = "use"
	sending  stage = "send"
)

// RoundTrip implements http.RoundTripper. The response's body ends the attempt when
// it is closed.
func (a attempts) RoundTrip(req *http.Request) (*http.Response, error) {
	p, x := a.p, exchangeOf(req.Context())
	req = p.recall(x, req)
	for {
		resp, t := p.attempt(x, req)
		if t.err == nil {
			next, err := p.replayed(x, req, resp)
			if next == nil && err == nil {
				x.body.settle()
				return resp, nil
			}
			_ = resp.Body.Close()
			if x.reply = nil; err != nil {
				return nil, err
			}
			p.Metrics.Repeated(x.app(), "replay")
			req = next
			continue
		}
		if fault := x.body.fault(); fault != nil {
			t.done(mark(&x.request, t, fault))
			return nil, fault
		}
		t.done(mark(&x.request, t, t.err))
		if p.another(x, req, t) {
			continue
		}
		ordered, refused := p.elsewhere(x, t)
		if ordered {
			continue
		}
		next := p.fallBack(x, t)
		switch {
		case next != nil:
			req = next
		case refused != nil:
			return nil, refused
		default:
			return nil, t.err
		}
	}
}

// another reports whether a request that failed is tried again, and has it go
// elsewhere.
func (p *Proxy) another(x *exchange, req *http.Request, t *try) bool {
	if t.stage == choosing || x.gone() || x.onward.late() || !repeatable(x.body, req, t) {
		return false
	}
	if p.awaits(x, t) {
		x.tries--
	} else if x.tries >= p.Limits.Attempts {
		return false
	}
	if _, final := errors.AsType[*refusal](t.err); final {
		return false
	}
	x.last = t
	if id := t.to.Machine; !slices.Contains(x.want.Not, id) {
		x.want.Not = append(x.want.Not, id)
	}
	p.Metrics.Repeated(x.app(), t.reason())
	return true
}

// repeatable reports whether a request may be sent again after an attempt that
// failed.
func repeatable(b *body, req *http.Request, t *try) bool {
	switch {
	case t.early || !b.again():
		return false
	case !t.sent:
		return true
	case timedOut(t.err): // the machine is at it, and another would take as long
		return false
	}
	return harmless(req, b.untouched())
}

// harmless reports whether a request may be acted on twice: by its method, or
// because it has a key that its machine knows it again by, as net/http has it.
func harmless(req *http.Request, untouched bool) bool {
	_, keyed := req.Header["Idempotency-Key"]
	_, keyedX := req.Header["X-Idempotency-Key"]
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return true
	case http.MethodPut, http.MethodDelete:
		return untouched || keyed || keyedX
	}
	return keyed || keyedX
}

// attempt sends the request to one machine. The try is never nil: its err is why
// there is no response, and with a response it is done when its body is closed.
func (p *Proxy) attempt(x *exchange, req *http.Request) (resp *http.Response, t *try) {
	t = &try{stage: choosing}
	x.latest = t
	x.attempts++
	x.tries++
	if t.err = p.choose(x, t); t.err != nil {
		return nil, t
	}
	t.stage = readying
	if t.err = p.ready(x, t); t.err != nil {
		return nil, t
	}
	t.stage = sending
	t.backend = p.pool.of(x.target, t.way)
	if resp, t.err = p.send(x, t, req); t.err != nil {
		return nil, t
	}
	p.hold(x, t, resp)
	return resp, t
}

// A request waits a little before it asks a machine again that has failed it, when
// there is no other: first so long, then twice as long, up to a most.
const (
	firstPause = 50 * time.Millisecond
	mostPause  = 400 * time.Millisecond
)

// choose waits for a place at a backend. When only what has failed is left, the
// error is what it failed with, unless another connection to it may help.
func (p *Proxy) choose(x *exchange, t *try) error {
	began := time.Now()
	ctx, cancel := context.WithDeadline(x.in.Context(), x.onward.by(began.Add(p.Limits.Turn)))
	defer cancel()
	ctx, span := trace.Start(ctx, "choose")
	turn, err := p.Balance.Take(ctx, x.target, x.want)
	span.End(err)
	x.waited += time.Since(began)
	if err != nil {
		return x.lastOr(err)
	}
	t.turn, t.to = turn, turn.Backend()
	if id := x.want.Instance; id != "" && id != t.to.Machine {
		t.missed = id
	}
	if x.last == nil || !slices.Contains(x.want.Not, t.to.Machine) {
		return nil
	}
	if x.last.stage == readying && !x.want.Only && !p.awaits(x, x.last) {
		return x.lastOr(nil)
	}
	return x.rest()
}

// awaits reports whether a worker that does not answer is waited for: a daemon that
// is restarted is back before long, and its machines run all the while. A request that
// would fall back goes there at once instead.
func (p *Proxy) awaits(x *exchange, failed *try) bool {
	if x.onward.falls() {
		return false
	}
	return failed.stage == readying && bourse.CodeOf(failed.err) == bourse.CodeUnavailable && time.Since(x.began) < p.Limits.Away
}

// rest waits before a machine is asked again.
func (x *exchange) rest() error {
	if x.tries <= 2 && x.last.stage == sending { // its way had ended, most likely, and Use makes another
		return nil
	}
	x.pause = min(max(2*x.pause, firstPause), mostPause)
	select {
	case <-time.After(x.pause):
		return nil
	case <-x.in.Context().Done():
		return x.in.Context().Err()
	}
}

// lastOr returns what the attempt before this one failed with, err if there was
// none.
func (x *exchange) lastOr(err error) error {
	if x.last == nil {
		return err
	}
	x.latest = x.last
	return x.last.err
}

// ready has the machine started, if it must be, and accept connections.
func (p *Proxy) ready(x *exchange, t *try) (err error) {
	if !p.waiting.enter(x.target) {
		return &refusal{status: http.StatusServiceUnavailable, text: "too many requests wait for a machine of this app"}
	}
	defer p.waiting.leave(x.target)
	began := time.Now()
	if x.readyBy.IsZero() {
		x.readyBy = x.onward.by(began.Add(p.Limits.Ready))
	}
	ctx, cancel := context.WithDeadline(x.in.Context(), x.readyBy)
	defer cancel()
	b := &t.to
	ctx, span := trace.Start(ctx, "ready")
	t.way, err = p.Ways.Use(ctx, b.Worker, b.Machine, b.Service.InternalPort, b.Service.Autostart)
	span.Set("bourse.machine", string(b.Machine))
	span.End(err)
	took := time.Since(began)
	x.used += took
	if b.State != bourse.StateStarted && !x.gone() {
		p.Metrics.Woke(x.app(), err == nil, took)
	}
	if err == nil {
		t.unused = t.way.Begin()
	}
	return err
}

// send sends the request and waits for the head of the reply.
func (p *Proxy) send(x *exchange, t *try, req *http.Request) (*http.Response, error) {
	var on atomic.Pointer[counted]
	var before atomic.Int64
	var early atomic.Bool
	ctx, span := trace.Start(req.Context(), "send")
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			if c, ok := i.Conn.(*counted); ok {
				before.Store(c.written.Load())
				on.Store(c)
			}
		},
		Got1xxResponse: func(int, textproto.MIMEHeader) error { early.Store(true); return nil },
	})
	out := req.WithContext(ctx)
	if x.body != nil {
		out.Body = x.body.reader()
	}
	address(out, x.target, t, x.attempts)
	if span.On() {
		passOn(out)
	}
	resp, err := t.backend.RoundTrip(out)
	span.Set("bourse.machine", string(t.to.Machine))
	span.End(err)
	if t.conn = on.Load(); t.conn != nil {
		c := t.conn
		// Requests of others on the same connection count, too: HTTP/2 is on the safe side.
		t.sent = c.written.Load() > before.Load()
	}
	t.early = early.Load()
	if err != nil && t.conn.isShed() {
		return resp, errShed()
	}
	if err != nil && over(t.way) {
		err = bourse.Errorf(bourse.CodeUnavailable, "the way to the machine was lost: %s", err) // no end of some time of ours
	}
	return resp, err
}

// over reports whether a way has ended.
func over(w Way) bool {
	select {
	case <-w.Done():
		return true
	default:
		return false
	}
}

// done ends what the attempt has of its machine: see [mark] for failed. It may be
// called twice.
func (t *try) done(failed error) {
	if t.backend != nil && failed != nil && !errors.Is(failed, context.Canceled) {
		t.backend.CloseIdleConnections() // they may be as bad
	}
	if t.unused != nil {
		t.unused()
		t.unused = nil
	}
	if t.turn != nil {
		t.turn.Done(failed)
		t.turn = nil
	}
}

// reason says in a word why the attempt is followed by another.
func (t *try) reason() string {
	switch {
	case t.stage == readying:
		return "use"
	case !t.sent:
		return "dial"
	}
	return "lost"
}
