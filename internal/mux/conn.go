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

// Call is a request to the other end of a connection.
type Call struct {
	Subject  string    // the call's subject, an ASCII word; required
	Deadline time.Time // time at which the caller abandons the call; zero if the call has no deadline or the caller did not send it
	Type     string    // media type of the payload; optional
	Payload  []byte
}

// Answer is the answer to a call.
type Answer struct {
	Status int    // an HTTP status from 200 to 599
	Type   string // media type of the body; optional
	Body   []byte
}

// NotSent is the error of a call that failed before any part of it was sent.
type NotSent struct{ Err error }

func (e NotSent) Error() string { return "not sent: " + e.Err.Error() }

// Unwrap returns the reason why nothing was sent.
func (e NotSent) Unwrap() error { return e.Err }

// Config configures a [Conn]. All fields except the limits are optional.
type Config struct {
	Limits
	Idle  time.Duration // how long the connection may be unused before it is closed
	Rest  time.Duration // maximum time for a frame to arrive completely once it has begun; later answers wait for it
	Stall time.Duration // how long the other end may stop reading while data is waiting
	// Ping is how long the other end may be silent before a ping is sent, and Pong is how long it may
	// then take to respond.
	Ping, Pong time.Duration
}

// Conn is a caller's end of a connection. It is safe for concurrent use.
type Conn struct {
	config Config
	r      *reader
	w      writer
	over   chan struct{} // closed when Run has returned
	free   sync.Pool     // unused *waiter values

	mu      sync.Mutex
	last    uint64 // id of the newest call
	waiting map[uint64]*waiter
	leaving bool  // whether new calls are refused
	err     error // why the connection ended
	timer   *time.Timer
	seen    uint64    // the newest call at the last tick
	used    time.Time // time of the last tick with a call in progress
	pinged  bool      // whether a ping was sent and nothing has been received since
}

// waiter is a call that waits for its answer. Waiters are reused.
type waiter struct {
	done  chan struct{} // receives a value when reply and err are set
	timer *time.Timer
	start uint64 // position of the call's frame in the writer's stream
	reply Answer
	err   error
}

func newWaiter() any {
	w := &waiter{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	w.timer.Stop()
	return w
}

// ErrEnded means that a call was made on a connection that has ended. Errors wrap it together with
// the reason why the connection ended.
var ErrEnded = errors.New("the connection has ended")

var (
	errLeaving = errors.New("the connection is being closed")
	errIdle    = errors.New("the connection is idle")
	errSilent  = errors.New("the other end does not respond")
	errLost    = errors.New("the other end aborted the call")
	errBounds  = errors.New("the call exceeds the size limits")
)

// NewConn returns a Conn that owns conn. conn is either the given [Pipe] itself or a TLS connection
// over it. The caller must call Run.
func NewConn(conn net.Conn, pipe *Pipe, config Config) *Conn {
	pipe.begin(config.Stall)
	c := &Conn{
		config: config, over: make(chan struct{}), free: sync.Pool{New: newWaiter},
		waiting: map[uint64]*waiter{}, used: time.Now(),
	}
	c.r, c.w.conn, c.w.pipe = newReader(conn, conn, &c.config.Limits, config.Rest), conn, pipe
	if tick := cmp.Or(config.Ping, config.Idle); tick > 0 {
		c.mu.Lock()
		c.timer = time.AfterFunc(tick, c.tick)
		c.mu.Unlock()
	}
	return c
}

// Close aborts the calls in progress and waits until the connection's goroutines have exited.
func (c *Conn) Close() {
	c.w.fail(net.ErrClosed)
	<-c.over
}

// Done returns a channel that is closed once the connection has ended and its goroutines have
// exited.
func (c *Conn) Done() <-chan struct{} { return c.over }

// Ended reports whether the connection has stopped accepting calls.
func (c *Conn) Ended() bool {
	if _, err := c.w.failed(); err != nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil || c.leaving
}

// Leave makes the connection refuse new calls, and close once no call is in progress. It
// does not wait.
func (c *Conn) Leave() {
	c.mu.Lock()
	c.leaving = true
	empty := len(c.waiting) == 0
	c.mu.Unlock()
	if empty {
		c.w.fail(errLeaving)
	}
}

// Call sends a call and waits for its answer. It returns context.DeadlineExceeded after the call's deadline, and ctx's
// cause if ctx is canceled. If the call cannot be sent, for example because it exceeds the limits or because the
// connection has ended, the error is [NotSent]. Any other error means that the connection broke after a part of the
// call may have been sent, or that the other end aborted the call.
func (c *Conn) Call(ctx context.Context, q *Call) (Answer, error) {
	l := &c.config.Limits
	if !isWord(q.Subject, l.Word) || !isMedia(q.Type, l.Word) || len(q.Payload) > l.Payload {
		return Answer{}, NotSent{errBounds}
	}
	w := c.free.Get().(*waiter) //nolint:forcetypeassert // newWaiter returns nothing else
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
	if !c.exit(id) { // the answer has arrived in the meantime
		<-w.done
		a, end := w.end()
		if sent {
			return a, end
		}
	} else if sent {
		_, _ = c.w.put(&frame{verb: verbCancel, id: id}, nil, nil, true) // if this fails, the other end notices that the connection broke
	}
	return Answer{}, err
}

// end returns the result of a call, and prepares the waiter to be reused.
func (w *waiter) end() (Answer, error) {
	reply, err := w.reply, w.err
	w.reply, w.err = Answer{}, nil
	return reply, err
}

// enter assigns a number to a call and registers its waiter.
func (c *Conn) enter(w *waiter) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.leaving {
		return 0, fmt.Errorf("%w: %w", ErrEnded, cmp.Or(c.err, errLeaving))
	}
	c.last++
	w.start = math.MaxUint64
	c.waiting[c.last] = w
	c.w.contended.Store(len(c.waiting) > 1)
	return c.last, nil
}

// exit removes a call whose caller no longer waits for the answer. It returns false if the answer
// or an error has already arrived or is about to arrive.
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

// left reports whether the connection refuses new calls and has no calls in progress. c.mu must be
// held.
func (c *Conn) left() bool { return c.leaving && len(c.waiting) == 0 }

// send writes the frame of a call. If sent is false, nothing was sent, and Call must return err.
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

// Run delivers answers to waiting calls until the connection ends. It must be called once. It
// returns when all of the connection's goroutines have exited.
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
	taken, err := c.w.failed() // returns the first error
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
		return fmt.Errorf("malformed frame: answer to unknown call %d", f.id)
	case !waited: // the caller has abandoned the call
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

// finish sets the result of a call, unless its caller no longer waits.
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

// tick sends pings, detects an unresponsive other end, and closes an idle connection.
func (c *Conn) tick() {
	ping, why := c.decide(time.Now(), c.r.active.Swap(false), c.w.writing())
	switch {
	case why != nil:
		c.w.fail(why)
	case ping:
		_, _ = c.w.put(&frame{verb: verbPing}, nil, nil, true) // if this fails, the reader notices that the connection broke
	}
}

// decide determines whether a tick must send a ping or end the connection. It holds c.mu, so that
// no call begins in the meantime.
func (c *Conn) decide(now time.Time, active, writing bool) (ping bool, why error) {
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
	case active || writing: // do not ping: data has arrived, or the writer will detect a broken connection
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
