package warm

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

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/trywrite"
)

// Call is one payload for a program.
type Call struct {
	Order    string    // id of the order: a word of ASCII, of at most 192 bytes; required
	Deadline time.Time // when the worker abandons the call; required
	Type     string    // media type of the payload; optional
	Payload  []byte    // at most bourse.MaxPayload
}

// Answer is a program's answer to a payload.
type Answer struct {
	Status int    // as HTTP's, 200 to 599: 2xx is an answer, anything else a failure, whose body says why; 0 is 200
	Type   string // media type of the body; optional
	Body   []byte // at most bourse.MaxAnswer
}

// NotSent is the error of a call of which not a byte has left.
type NotSent struct{ Err error }

func (e NotSent) Error() string { return "not sent: " + e.Err.Error() }

// Unwrap returns the reason.
func (e NotSent) Unwrap() error { return e.Err }

// Conn is a worker's end of a connection to a program. It may be used by many
// at once.
type Conn struct {
	w    writer
	idle time.Duration
	over chan struct{} // closed when its reader has ended
	free sync.Pool     // of waiters

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]*waiter
	used    bool  // since the idle timer looked last
	leaving bool  // takes no new calls
	err     error // it is broken, or closed
	timer   *time.Timer
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

// restPatience is how long the rest of an answer may take to arrive once it has
// begun: no other call is answered in the meantime.
const restPatience = 10 * time.Second

// NewConn makes calls over conn, which is its own from then on. Unused for idle
// it is closed; 0: never.
func NewConn(conn net.Conn, idle time.Duration) *Conn {
	c := &Conn{idle: idle, over: make(chan struct{}), waiting: map[uint64]*waiter{}}
	c.w.conn, c.w.try, c.free.New = conn, trywrite.To(conn), newWaiter
	if idle > 0 {
		c.mu.Lock()
		c.timer = time.AfterFunc(idle, c.look)
		c.mu.Unlock()
	}
	go c.read(conn)
	return c
}

// Close breaks the calls in progress and waits for the end of what the
// connection has started.
func (c *Conn) Close() {
	_ = c.w.conn.Close() // the calls get the error that broke them
	<-c.over
}

// Done is closed when the connection has ended and nothing of it is left.
func (c *Conn) Done() <-chan struct{} { return c.over }

// Ended reports whether the connection takes no more calls.
func (c *Conn) Ended() bool {
	c.w.mu.Lock()
	failed := c.w.err != nil
	c.w.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	return failed || c.err != nil || c.leaving
}

// Leave takes no new calls, and closes the connection when none is in progress.
// It does not wait for that.
func (c *Conn) Leave() {
	c.mu.Lock()
	c.leaving = true
	empty := len(c.waiting) == 0
	c.mu.Unlock()
	if empty {
		_ = c.w.conn.Close()
	}
}

// look closes a connection that has not been used since it looked last.
func (c *Conn) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
	case c.used || len(c.waiting) > 0:
		c.used = false
		c.timer.Reset(c.idle)
	default:
		c.leaving = true
		_ = c.w.conn.Close() // never waits
	}
}

// Call sends a payload and waits for its answer, at most until its deadline or
// the end of ctx. The error is then context.DeadlineExceeded or the cause of
// ctx's end, and the program is notified; NotSent when not a byte has left, or the
// call exceeds its limits; anything else when the connection broke.
func (c *Conn) Call(ctx context.Context, q *Call) (Answer, error) {
	if !word(q.Order) || !media(q.Type) || len(q.Payload) > bourse.MaxPayload {
		return Answer{}, NotSent{errors.New("the call is not in its bounds")}
	}
	w := c.free.Get().(*waiter) //nolint:forcetypeassert // newWaiter makes no other
	defer c.free.Put(w)
	w.timer.Reset(time.Until(q.Deadline))
	defer w.timer.Stop()
	id, err := c.enter(w)
	if err != nil {
		return Answer{}, NotSent{err}
	}
	if err := c.send(ctx, w, id, q); err != nil {
		if !c.exit(id) { // it broke meanwhile, and done is signaled
			<-w.done
			_, _ = w.end()
		}
		return Answer{}, err
	}
	select {
	case <-w.done:
		return w.end()
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-w.timer.C:
		err = context.DeadlineExceeded
	}
	if !c.exit(id) { // it was faster
		<-w.done
		return w.end()
	}
	c.cancel(id)
	return Answer{}, err
}

// end returns the outcome of a call.
func (w *waiter) end() (Answer, error) {
	reply, err := w.reply, w.err
	w.reply, w.err = Answer{}, nil
	return reply, err
}

var errLeaving = errors.New("the connection is being closed")

// enter numbers a call, whose answer is waited for from then on.
func (c *Conn) enter(w *waiter) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.leaving {
		return 0, cmp.Or(c.err, errLeaving)
	}
	c.last++
	w.start, c.used = math.MaxUint64, true
	c.waiting[c.last] = w
	return c.last, nil
}

// exit takes a call back whose answer is not waited for any more. It is false
// when the answer, or its error, is there already or about to be.
func (c *Conn) exit(id uint64) bool {
	c.mu.Lock()
	_, ok := c.waiting[id]
	delete(c.waiting, id)
	c.leaveAfter(ok)
	c.mu.Unlock()
	return ok
}

// leaveAfter closes a connection that is being left when a call was its last.
// c.mu is held.
func (c *Conn) leaveAfter(ended bool) {
	if ended && c.leaving && len(c.waiting) == 0 {
		_ = c.w.conn.Close() // never waits
	}
}

// send has the frame of a call written. The error is that of Call, and of one
// of which nothing has left.
func (c *Conn) send(ctx context.Context, w *waiter, id uint64, q *Call) error {
	for {
		ready := c.w.lock()
		if ready == nil {
			break
		}
		c.w.unlock()
		select {
		case <-ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.timer.C:
			return context.DeadlineExceeded
		}
	}
	if err := c.w.err; err != nil {
		c.w.unlock()
		return NotSent{err}
	}
	w.start = c.w.at()
	c.w.next = appendCall(c.w.next, id, q)
	c.w.unlock()
	return nil
}

func appendCall(to []byte, id uint64, q *Call) []byte {
	f := frame{verb: verbCall, id: id, deadline: q.Deadline.UnixMilli(), length: len(q.Payload), order: []byte(q.Order), media: []byte(q.Type)}
	return append(appendFrame(to, &f), q.Payload...)
}

// cancel notifies the program that a call is abandoned.
func (c *Conn) cancel(id uint64) {
	c.w.mu.Lock() // 30 bytes need not wait for space
	if c.w.err == nil {
		c.w.next = appendFrame(c.w.next, &frame{verb: verbCancel, id: id})
	}
	c.w.unlock()
}

// read passes answers to the calls that wait for them, until the connection ends.
func (c *Conn) read(conn net.Conn) {
	defer close(c.over)
	r := newReader(conn)
	r.hurry = func(waited bool) {
		var until time.Time
		if waited {
			until = time.Now().Add(restPatience)
		}
		_ = conn.SetReadDeadline(until) // of a connection that is closed it does not matter
	}
	var err error
	for media := ""; err == nil; {
		media, err = c.readReply(r, media)
	}
	written := c.w.fail(err)
	c.mu.Lock()
	c.err = err
	broken := c.waiting
	c.waiting = nil
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	for _, w := range broken {
		if w.err = err; w.start >= written {
			w.err = NotSent{err}
		}
		w.done <- struct{}{}
	}
}

// readReply reads one answer and hands it over. media is the type of the last
// one, which the next most often has, too.
func (c *Conn) readReply(r *reader, media string) (string, error) {
	line, err := r.line()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("the connection was closed: %w", err)
		}
		return "", err
	}
	f, err := parseReply(line)
	if err != nil {
		return "", err
	}
	if string(f.media) != media {
		media = bourse.MediaType(string(f.media))
	}
	c.mu.Lock()
	w, sent := c.waiting[f.id], f.id <= c.last
	c.mu.Unlock()
	switch {
	case !sent:
		return "", fmt.Errorf("malformed frame: an answer to call %d, which was not made", f.id)
	case w == nil: // it was abandoned
		return media, r.skip(f.length)
	}
	body := make([]byte, f.length)
	if err := r.body(body); err != nil {
		return "", err
	}
	c.mu.Lock()
	w = c.waiting[f.id] // it may have been abandoned meanwhile
	delete(c.waiting, f.id)
	c.leaveAfter(w != nil)
	c.mu.Unlock()
	if w != nil {
		w.reply = Answer{Status: f.status, Type: media, Body: body}
		w.done <- struct{}{}
	}
	return media, nil
}
