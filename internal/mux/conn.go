package mux

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"time"
)

// Call is what is sent to the other end.
type Call struct {
	Subject  string    // what the call is about: a word of ASCII; required
	Deadline time.Time // when the caller abandons it; zero: the other end does not know
	Type     string    // media type of the payload; optional
	Payload  []byte
}

// Answer is what comes back.
type Answer struct {
	Status int    // as HTTP's, 200 to 599
	Type   string // media type of the body; optional
	Body   []byte
}

// NotSent is the error of a call of which nothing has left.
type NotSent struct{ Err error }

func (e NotSent) Error() string { return "not sent: " + e.Err.Error() }

// Unwrap returns the reason.
func (e NotSent) Unwrap() error { return e.Err }

// Config is how a [Conn] treats its connection. All but the limits is optional.
type Config struct {
	Limits
	Idle  time.Duration // an unused connection is closed after this time
	Rest  time.Duration // how long the rest of a frame may take to arrive: no other call is answered meanwhile
	Stall time.Duration // how long the other end may read nothing of what waits for it
	// Ping is after how much silence the other end is asked for a sign of life,
	// which must come within Pong.
	Ping, Pong time.Duration
}

// Conn is a caller's end of a connection. It may be used by many at once.
type Conn struct {
	config Config
	r      *reader
	w      writer
	over   chan struct{} // closed when Run has returned
	free   sync.Pool     // of *waiter

	mu      sync.Mutex
	last    uint64 // id of the newest call
	waiting map[uint64]*waiter
	leaving bool  // takes no new calls
	err     error // why it takes none and answers none
	timer   *time.Timer
	seen    uint64    // the newest call at the last tick
	used    time.Time // when a call was last in progress, as ticks see it
	pinged  bool      // and nothing was received since
}

// waiter is a call that waits for its answer. It is used again for another one.
type waiter struct {
	done  chan struct{} // holds one: the two fields below are set
	timer *time.Timer
	start uint64 // of its frame, in the stream of the writer
	reply Answer
	err   error
}

func newWaiter() any {
	w := &waiter{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	w.timer.Stop()
	return w
}

// ErrEnded is in the error of a call that finds its connection ended.
var ErrEnded = errors.New("the connection has ended")

var (
	errLeaving = errors.New("the connection is being closed")
	errIdle    = errors.New("no call uses the connection")
	errSilent  = errors.New("the other end is silent")
	errLost    = errors.New("the other end broke it off")
	errBounds  = errors.New("the call is not in its bounds")
)

// NewConn makes calls over conn, which is its own from then on: a [Pipe], or TLS
// on one. Run must follow.
func NewConn(conn net.Conn, below *Pipe, config Config) *Conn {
	below.begin(config.Stall)
	c := &Conn{
		config: config, over: make(chan struct{}), free: sync.Pool{New: newWaiter},
		waiting: map[uint64]*waiter{}, used: time.Now(),
	}
	c.r, c.w.conn, c.w.pipe = newReader(conn, conn, &c.config.Limits, config.Rest), conn, below
	if tick := cmp.Or(config.Ping, config.Idle); tick > 0 {
		c.mu.Lock()
		c.timer = time.AfterFunc(tick, c.tick)
		c.mu.Unlock()
	}
	return c
}

// Close breaks the calls in progress and waits for the end of what the
// connection has started.
func (c *Conn) Close() {
	c.w.fail(net.ErrClosed)
	<-c.over
}

// Done is closed when the connection has ended and nothing of it is left.
func (c *Conn) Done() <-chan struct{} { return c.over }

// Ended reports whether the connection takes no more calls.
func (c *Conn) Ended() bool {
	if _, err := c.w.failed(); err != nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil || c.leaving
}

// Leave takes no new calls, and closes the connection when none is in progress.
// It does not wait for that.
func (c *Conn) Leave() {
	c.mu.Lock()
	c.leaving = true
	empty := len(c.waiting) == 0
	c.mu.Unlock()
	if empty {
		c.w.fail(errLeaving)
	}
}

// Call sends a call and waits for its answer, at most until its deadline or the
// end of ctx. The error is then context.DeadlineExceeded or the cause of ctx's
// end; NotSent when nothing has left, or the call exceeds its limits; anything
// else when the connection broke or the other end broke the call off.
func (c *Conn) Call(ctx context.Context, q *Call) (Answer, error) {
	l := &c.config.Limits
	if !isWord(q.Subject, l.Word) || !isMedia(q.Type, l.Word) || len(q.Payload) > l.Payload {
		return Answer{}, NotSent{errBounds}
	}
	w := c.free.Get().(*waiter) //nolint:forcetypeassert // newWaiter makes no other
	defer c.free.Put(w)
	if !q.Deadline.IsZero() {
		w.timer.Reset(time.Until(q.Deadline))
		defer w.timer.Stop()
	}
	id, err := c.enter(w)
	if err != nil {
		return Answer{}, NotSent{err}
	}
	sent, err := c.send(ctx, w, id, q)
	if err == nil {
		select {
		case <-w.done:
			return w.end()
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-w.timer.C:
			err = context.DeadlineExceeded
		}
	}
	if !c.exit(id) { // its end came at the same time
		<-w.done
		a, end := w.end()
		if sent {
			return a, end
		}
	} else if sent {
		_, _ = c.w.put(&frame{verb: verbCancel, id: id}, nil, nil, true) // the other end sees that it broke
	}
	return Answer{}, err
}

// end returns the outcome of a call.
func (w *waiter) end() (Answer, error) {
	reply, err := w.reply, w.err
	w.reply, w.err = Answer{}, nil
	return reply, err
}

// enter numbers a call, whose answer is waited for from then on.
func (c *Conn) enter(w *waiter) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.leaving {
		return 0, fmt.Errorf("%w: %w", ErrEnded, cmp.Or(c.err, errLeaving))
	}
	c.last++
	w.start = math.MaxUint64
	c.waiting[c.last] = w
	c.w.crowd.Store(len(c.waiting) > 1)
	return c.last, nil
}

// exit removes a call whose answer is not waited for any more. It is false when
// the answer, or its error, is there already or about to be.
func (c *Conn) exit(id uint64) bool {
	c.mu.Lock()
	_, ok := c.waiting[id]
	delete(c.waiting, id)
	left := c.left()
	c.mu.Unlock()
	if left {
		c.w.fail(errLeaving)
	}
	return ok
}

// left reports whether the connection is being left and has no calls any more.
// c.mu is held.
func (c *Conn) left() bool { return c.leaving && len(c.waiting) == 0 }

// send has the frame of a call written. Without sent nothing has left, and the
// error is that of Call.
func (c *Conn) send(ctx context.Context, w *waiter, id uint64, q *Call) (sent bool, err error) {
	f := frame{verb: verbCall, id: id, subject: []byte(q.Subject), length: len(q.Payload), media: []byte(q.Type)}
	if !q.Deadline.IsZero() {
		f.deadline = q.Deadline.UnixMilli()
	}
	for {
		full, err := c.w.put(&f, q.Payload, &w.start, false)
		if err != nil {
			return false, NotSent{fmt.Errorf("%w: %w", ErrEnded, err)}
		}
		if full == nil {
			return true, nil
		}
		select {
		case <-full:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-w.timer.C:
			return false, context.DeadlineExceeded
		}
	}
}

// Run passes answers to the calls that wait for them, until the connection ends.
// It is called once, and returns when nothing of the connection is left.
func (c *Conn) Run() {
	defer close(c.over)
	var err error
	for err == nil {
		err = c.readFrame()
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the connection was closed: %w", err)
	}
	c.w.fail(err)
	taken, err := c.w.failed() // for the first reason
	c.mu.Lock()
	c.err = err
	broken := c.waiting
	c.waiting = nil
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	for _, w := range broken {
		if w.err = err; w.start >= taken {
			w.err = NotSent{err}
		}
		w.done <- struct{}{}
	}
	c.w.work.Wait()
}

// readFrame reads one frame and handles it.
func (c *Conn) readFrame() error {
	f, err := c.r.next()
	if err != nil {
		return err
	}
	switch f.verb {
	case verbPong:
		return nil
	case verbDone, verbLost:
	default:
		return malformed([]byte(verbs[f.verb]))
	}
	c.mu.Lock()
	waited, made := c.waiting[f.id] != nil, f.id <= c.last
	c.mu.Unlock()
	switch {
	case !made:
		return fmt.Errorf("malformed frame: an answer to call %d, which was not made", f.id)
	case !waited: // it was abandoned
		return c.r.skip(f.length)
	case f.verb == verbLost:
		c.finish(f.id, Answer{}, errLost)
		return nil
	}
	a := Answer{Status: f.status, Type: string(f.media)}
	if a.Body, err = c.r.take(f.length); err == nil {
		c.finish(f.id, a, nil)
	}
	return err
}

// finish sets the outcome of a call, if it is still waited for.
func (c *Conn) finish(id uint64, a Answer, err error) {
	c.mu.Lock()
	w := c.waiting[id]
	delete(c.waiting, id)
	left := w != nil && c.left()
	c.mu.Unlock()
	if w != nil {
		w.reply, w.err = a, err
		w.done <- struct{}{}
	}
	if left {
		c.w.fail(errLeaving)
	}
}

// tick detects that the other end has vanished, and closes a connection that is
// not used.
func (c *Conn) tick() {
	ping, why := c.look(time.Now(), c.r.active.Swap(false), c.w.writing())
	switch {
	case why != nil:
		c.w.fail(why)
	case ping:
		_, _ = c.w.put(&frame{verb: verbPing}, nil, nil, true) // the reader sees that it broke
	}
}

// look decides what a tick does: ask for a sign of life, or end the connection,
// under the lock, so that no call begins meanwhile.
func (c *Conn) look(now time.Time, active, writing bool) (ping bool, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return false, nil
	}
	if len(c.waiting) > 0 || c.last != c.seen {
		c.used, c.seen = now, c.last
	}
	next := cmp.Or(c.config.Ping, c.config.Idle)
	switch {
	case c.config.Idle > 0 && now.Sub(c.used) >= c.config.Idle:
		c.leaving = true
		return false, errIdle
	case c.config.Ping == 0:
	case active || writing: // the one that writes notices by itself
		c.pinged = false
	case c.pinged:
		c.leaving = true
		return false, errSilent
	default:
		c.pinged, ping, next = true, true, c.config.Pong
	}
	c.timer.Reset(next)
	return ping, nil
}
