package nats

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	client "github.com/nats-io/nats.go"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

const (
	callsOnce = 4096            // calls that are served at a time; more are turned away
	callGrace = 3 * time.Second // for calls in progress when the server is asked to end
	// idleCrew is how many goroutines wait for the next call: a new one would
	// grow its stack again, which costs as much as everything else here.
	idleCrew = 64
)

// statusAnother answers a call that is for another worker.
const statusAnother = http.StatusMisdirectedRequest

// desk is where a worker serves calls. The link's lock guards what changes.
type desk struct {
	id      bourse.WorkerID
	handler http.Handler
	most    int          // calls at a time
	busy    int          // calls in progress
	idle    int          // goroutines that wait for one
	next    chan *served // for them; buffered for all
	closing bool
	free    chan struct{} // closed when no call is left, and it is closing
}

// served is a call of another's.
type served struct {
	id     callID
	answer string // subject
	request
	ctx  context.Context //nolint:containedctx // the handler's, passed to the goroutine
	cut  context.CancelCauseFunc
	left atomic.Bool // the answer is no longer waited for
	seen bool        // by the watch; under the link's lock
}

// Serve has a worker answer calls as its handler does, until stop is called:
// that refuses more, allows those in progress a few seconds and cancels the
// rest. It returns when all have ended. Serve is called once, by a worker that needs no
// proof of who calls.
func (l *Link) Serve(id bourse.WorkerID, handler http.Handler) (stop func(), err error) {
	d := &desk{id: id, handler: handler, most: callsOnce, next: make(chan *served, idleCrew), free: make(chan struct{})}
	l.mu.Lock()
	l.desk = d
	l.mu.Unlock()
	if _, err := l.subscribe(l.calls(l.own), l.takeCall); err != nil {
		return nil, err
	}
	if l.nats.IsConnected() {
		_ = l.nats.FlushTimeout(lastWords) // from now on calls come; until then they go over connections
	}
	return func() { l.closeDesk(d) }, nil
}

// closeDesk takes no more calls and waits for those in progress.
func (l *Link) closeDesk(d *desk) {
	l.mu.Lock()
	if !d.closing {
		d.closing = true
		if d.busy == 0 {
			close(d.free)
		}
	}
	l.mu.Unlock()
	select {
	case <-d.free:
		return
	case <-time.After(callGrace):
	case <-l.ended:
	}
	l.config.Log.Warn("calls still under way are cut off")
	l.mu.Lock()
	for _, c := range l.theirs {
		c.cut(errClosing)
	}
	l.mu.Unlock()
	<-d.free
}

// takeCall takes a message at the subject of calls.
func (l *Link) takeCall(m *client.Msg) {
	kind := callKind(0)
	if len(m.Data) > 0 {
		kind = callKind(m.Data[0])
	}
	switch kind {
	case callRequest:
		l.takeRequest(m)
	case callLeave:
		l.takeLeave(m.Data[1:])
	case callRoll:
		l.takeRollOfCaller(m.Data)
	default:
		l.Strange.Add(1)
	}
}

// takeLeave cancels the handler of a call that is no longer waited for.
func (l *Link) takeLeave(b []byte) {
	id, err := parseLeave(b)
	if err != nil {
		l.Strange.Add(1)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.theirs[id]; c != nil {
		l.hear(id.from)
		c.leave()
	}
}

// takeRequest has a call served.
func (l *Link) takeRequest(m *client.Msg) {
	id, ok := l.callOf(m.Reply)
	r, err := parseRequest(m.Data[1:])
	switch {
	case !ok || err != nil:
		l.Strange.Add(1)
		return
	case len(r.Body) > fabric.MaxBody:
		l.Oversized.Add(1)
		return
	}
	ctx, cut := context.WithCancelCause(context.Background())
	c := &served{id: id, answer: m.Reply, request: r, ctx: ctx, cut: cut}
	switch d, err := l.enter(c); {
	case errors.Is(err, errTwice):
		l.Strange.Add(1)
		cut(nil)
	case err != nil:
		l.Dropped.Add(1)
		cut(nil)
		h := fabric.Hold(partHeader)
		fabric.WriteFailure(h, bourse.Errorf(bourse.CodeUnavailable, "worker %s: %w", d.id, err))
		l.reply(c.answer, h)
		h.Release()
	}
}

var (
	errTwice = errors.New("a call that is under way")
	errBusy  = errors.New("too many calls are under way")
)

// enter has a call served, or returns why not.
func (l *Link) enter(c *served) (*desk, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.desk
	switch {
	case l.theirs[c.id] != nil:
		return d, errTwice
	case l.closed || d.closing:
		return d, errClosing
	case d.busy >= d.most:
		return d, errBusy
	}
	l.hear(c.id.from)
	l.theirs[c.id] = c
	d.busy++
	if d.idle > 0 {
		d.idle--
		d.next <- c
	} else {
		l.work.Go(func() { l.crew(d, c) })
	}
	return d, nil
}

// crew serves a call, and others after it.
func (l *Link) crew(d *desk, c *served) {
	for l.serve(d, c) {
		select {
		case c = <-d.next:
			continue
		default:
		}
		select {
		case c = <-d.next:
		case <-d.free:
			return
		case <-l.ended: // from now on nothing is put into next
			select {
			case c = <-d.next:
			default:
				return
			}
		}
	}
}

// serve has the handler answer a call, and reports whether to wait for another.
// The call leaves the table after its answer was sent: see takeRollOfCaller.
func (l *Link) serve(d *desk, c *served) (more bool) {
	h := fabric.Hold(partHeader)
	whole := l.handle(d, c, h)
	switch {
	case c.left.Load():
		h.Release()
	case whole:
		l.post(letter{to: c.answer, held: h})
	default:
		h.Release()
		l.breakCall(c.answer)
	}
	c.cut(nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.theirs, c.id)
	if d.busy--; d.busy == 0 && d.closing {
		close(d.free)
	}
	if d.idle == idleCrew {
		return false
	}
	d.idle++
	return true
}
