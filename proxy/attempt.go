package proxy

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/trace"
	"github.com/bourse-dev/bourse/proxy/route"
)

// retryTransport is an http.RoundTripper that sends a request to one machine after another until one of them replies.
type retryTransport struct{ p *Proxy }

// attempt is one attempt to get a reply from a machine.
type attempt struct {
	backend      route.Backend    // the chosen machine; zero if none was chosen
	chosen       time.Time        // when the machine was chosen
	notPreferred bourse.MachineID // the machine that the client prefers, if another one was chosen
	slot         Slot
	upstream     Upstream
	endUse       func() // stops counting this request as a use of the upstream
	transport    *machineTransport
	conn         *trackedConn // connection on which the request was sent
	stage        stage
	sent         bool // the machine may have received at least one byte of the request
	early        bool // the client has already received a 1xx reply
	err          error
}

// stage is the furthest step that an attempt has reached.
type stage string

const (
	stageChoose stage = "choose"
	stageUse    stage = "use"
	stageSend   stage = "send"
)

// RoundTrip implements http.RoundTripper. Closing the response's body ends the attempt.
func (a retryTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	p, x := a.p, exchangeOf(req.Context())
	req = p.useCachedReplay(x, req)
	for {
		resp, t := p.attempt(x, req)
		if t.err == nil {
			next, err := p.handleReplay(x, req, resp)
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
		if fault := x.body.clientFault(); fault != nil {
			t.done(backendError(&x.request, t, fault))
			return nil, fault
		}
		t.done(backendError(&x.request, t, t.err))
		if p.retry(x, req, t) {
			continue
		}
		ordered, refused := p.failover(x, t)
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

// retry reports whether a failed request should be sent again. If so, it records the failed attempt, so that the next
// one prefers machines on which the request has not failed yet.
func (p *Proxy) retry(x *exchange, req *http.Request, t *attempt) bool {
	if t.stage == stageChoose || x.clientLeft() || x.replay.expired() || !canRepeat(x.body, req, t) {
		return false
	}
	if t.stage == stageUse && bourse.CodeOf(t.err) == bourse.CodeUnavailable {
		x.noResponse(t.backend.Worker, time.Since(t.chosen))
	}
	if p.waitsFor(x, t.backend.Worker) {
		x.tries--
	} else if x.tries >= p.Limits.MaxAttempts {
		return false
	}
	if _, final := errors.AsType[*statusError](t.err); final {
		return false
	}
	x.failed = t
	if id := t.backend.Machine; !slices.Contains(x.criteria.Tried, id) {
		x.criteria.Tried = append(x.criteria.Tried, id)
	}
	p.Metrics.Repeated(x.app(), t.retryReason())
	return true
}

// canRepeat reports whether a request may be sent again after a failed attempt.
func canRepeat(b *body, req *http.Request, t *attempt) bool {
	switch {
	case t.early || !b.replayable():
		return false
	case !t.sent:
		return true
	case isTimeout(t.err): // the machine is still processing the request, and another machine would take just as long
		return false
	}
	return isIdempotent(req, b.unread())
}

// isIdempotent reports whether a request can safely be processed twice. As in net/http, this depends on the request's
// method and on whether it has an idempotency key. Without a key, PUT and DELETE count as idempotent only if
// untouched is set, which means that no byte of the body has been read.
func isIdempotent(req *http.Request, untouched bool) bool {
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

// attempt sends the request to one machine. The returned attempt t is never nil. If there is no response, t.err
// contains the reason. Otherwise, the attempt ends when the response's body is closed.
func (p *Proxy) attempt(x *exchange, req *http.Request) (resp *http.Response, t *attempt) {
	t = &attempt{stage: stageChoose}
	x.latest = t
	x.attempts++
	x.tries++
	if t.err = p.choose(x, t); t.err != nil {
		return nil, t
	}
	t.stage = stageUse
	if t.err = p.ensureReady(x, t); t.err != nil {
		return nil, t
	}
	t.stage = stageSend
	t.transport = p.transports.get(x.target, t.upstream)
	if resp, t.err = p.send(x, t, req); t.err != nil {
		return nil, t
	}
	p.trackReply(x, t, resp)
	return resp, t
}

// Limits on the pause before the proxy retries a machine that has already failed, which it does only if no other
// machine is left. The first pause lasts for minPause. Each further pause is twice as long as the previous one, up to
// maxPause.
const (
	minPause = 50 * time.Millisecond
	maxPause = 400 * time.Millisecond
)

// choose waits for a slot on a machine. If the request has already failed on every usable machine, and another
// attempt is unlikely to succeed, choose returns the previous attempt's error.
func (p *Proxy) choose(x *exchange, t *attempt) error {
	began := time.Now()
	ctx, cancel := context.WithDeadline(x.in.Context(), x.replay.deadline(began.Add(p.Limits.Queue)))
	defer cancel()
	ctx, span := trace.Start(ctx, "choose")
	slot, err := p.Balance.Acquire(ctx, x.target, x.criteria)
	span.End(err)
	x.waited += time.Since(began)
	if err != nil {
		return x.lastError(err)
	}
	t.slot, t.backend, t.chosen = slot, slot.Backend(), time.Now()
	if id := x.criteria.Instance; id != "" && id != t.backend.Machine {
		t.notPreferred = id
	}
	if x.failed == nil || !slices.Contains(x.criteria.Tried, t.backend.Machine) {
		return nil
	}
	if x.failed.stage == stageUse && !x.criteria.Only && !p.waitsFor(x, t.backend.Worker) {
		return x.lastError(nil)
	}
	return x.backOff()
}

// waitsFor reports whether the request should continue to wait for an unresponsive worker. Waiting makes sense because
// the worker's machines keep running while its daemon restarts. A request with a fallback does not wait.
func (p *Proxy) waitsFor(x *exchange, w bourse.WorkerID) bool {
	waited, unresponsive := x.criteria.Unresponsive[w]
	return unresponsive && waited < p.Limits.WorkerOutage && !x.replay.canFallBack()
}

// backOff pauses before another attempt on a machine that has already failed.
func (x *exchange) backOff() error {
	if x.tries <= 2 && x.failed.stage == stageSend { // most likely, the upstream had already ended, and the next attempt opens a new one
		return nil
	}
	x.pause = min(max(2*x.pause, minPause), maxPause)
	select {
	case <-time.After(x.pause):
		return nil
	case <-x.in.Context().Done():
		return x.in.Context().Err()
	}
}

// lastError returns the error of the previous attempt, or err if there was no previous attempt.
func (x *exchange) lastError(err error) error {
	if x.failed == nil {
		return err
	}
	x.latest = x.failed
	return x.failed.err
}

// ensureReady asks the machine's worker to start the machine if necessary, and waits until the
// machine accepts connections.
func (p *Proxy) ensureReady(x *exchange, t *attempt) (err error) {
	if !p.waitLimit.enter(x.target) {
		return &statusError{status: http.StatusServiceUnavailable, text: "too many requests are waiting for a machine of this app"}
	}
	defer p.waitLimit.leave(x.target)
	began := time.Now()
	if x.readyDeadline.IsZero() {
		x.readyDeadline = x.replay.deadline(began.Add(p.Limits.Ready))
	}
	ctx, cancel := context.WithDeadline(x.in.Context(), x.readyDeadline)
	defer cancel()
	b := &t.backend
	ctx, span := trace.Start(ctx, "ready")
	t.upstream, err = p.Upstreams.Use(ctx, b.Worker, b.Machine, b.Service.InternalPort, b.Service.Autostart)
	span.Set("bourse.machine", string(b.Machine))
	span.End(err)
	took := time.Since(began)
	x.used += took
	if b.State != bourse.StateStarted && !x.clientLeft() {
		p.Metrics.MachineWoken(x.app(), err == nil, took)
	}
	if err == nil {
		t.endUse = t.upstream.Begin()
	}
	return err
}

// send sends the request, and waits for the header of the reply.
func (p *Proxy) send(x *exchange, t *attempt, req *http.Request) (*http.Response, error) {
	var on atomic.Pointer[trackedConn]
	var before atomic.Int64
	var early atomic.Bool
	ctx, span := trace.Start(req.Context(), "send")
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			if c, ok := i.Conn.(*trackedConn); ok {
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
	prepareRequest(out, x.target, t, x.attempts)
	if span.On() {
		propagateTrace(out)
	}
	resp, err := t.transport.RoundTrip(out)
	span.Set("bourse.machine", string(t.backend.Machine))
	span.End(err)
	if t.conn = on.Load(); t.conn != nil {
		c := t.conn
		// The count of written bytes includes other requests if the HTTP/2 connection is shared. Therefore, sent may be
		// true even if no byte of this request was sent. This is the safe choice.
		t.sent = c.written.Load() > before.Load()
	}
	t.early = early.Load()
	if err != nil && t.conn.wasEvicted() {
		return resp, errConnectionShare()
	}
	if err != nil && isClosed(t.upstream) {
		// Do not wrap err, because isTimeout could mistake it for one of the proxy's own timeouts.
		err = bourse.Errorf(bourse.CodeUnavailable, "lost the connection to the machine: %s", err)
	}
	return resp, err
}

// isClosed reports whether an upstream can no longer be used.
func isClosed(w Upstream) bool {
	select {
	case <-w.Done():
		return true
	default:
		return false
	}
}

// done releases the attempt's connection, upstream and slot. failed is the result of [backendError]. Subsequent calls
// have no effect.
func (t *attempt) done(failed error) {
	if t.transport != nil && failed != nil && !errors.Is(failed, context.Canceled) {
		t.transport.CloseIdleConnections() // the remaining idle connections may also be broken
	}
	if t.endUse != nil {
		t.endUse()
		t.endUse = nil
	}
	if t.slot != nil {
		t.slot.Done(failed)
		t.slot = nil
	}
}

// retryReason returns the metrics label for the reason why the request is sent again after this attempt.
func (t *attempt) retryReason() string {
	switch {
	case t.stage == stageUse:
		return "use"
	case !t.sent:
		return "dial"
	}
	return "lost"
}

// waitLimit limits the number of requests that wait for machines of the same target to become ready.
type waitLimit struct {
	max int

	mu      sync.Mutex
	targets map[route.Key]int
}

// enter counts a request that is about to wait for one of the target's machines. It returns false if the limit has
// been reached.
func (w *waitLimit) enter(t *route.Target) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := t.Key()
	if w.targets == nil {
		w.targets = map[route.Key]int{}
	}
	if w.targets[at] >= w.max {
		return false
	}
	w.targets[at]++
	return true
}

func (w *waitLimit) leave(t *route.Target) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := t.Key()
	if w.targets[at]--; w.targets[at] == 0 {
		delete(w.targets, at)
	}
}
