package direct

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse/fabric"
)

// readAhead is how many bytes a reader's buffer has.
const readAhead = 8 << 10

// call is one that this end made and that waits for its answer. The line's lock
// guards it as long as it is in the line's table.
type call struct {
	number uint64
	start  uint64       // where its frame begins, in bytes of the line
	done   chan<- *call // receives it when it leaves the table with an outcome; buffered
	of     int          // its maker's

	status int
	body   []byte
	err    error // why there is no answer
	unsent bool  // not one byte of it was written
}

// line is our end of a connection of calls. A caller that has something to write does it
// from its own goroutine, unless another is writing, which then writes that,
// too; none waits for the worker to read. One goroutine reads.
type line struct {
	conn  net.Conn // over below, or that
	below *nowait
	ended func() // called once, under no lock
	work  *sync.WaitGroup
	heard atomic.Bool // since the last tick

	mu      sync.Mutex
	err     error // why it has ended; nil: it has not
	calls   map[uint64]*call
	last    uint64 // number of the newest
	pending pending
	timer   *time.Timer
	pinged  bool      // and nothing was received since
	seen    uint64    // the newest call at the last tick
	used    time.Time // when a call was last in progress, as ticks see it
}

var (
	errOver   = errors.New("the connection has ended")
	errFull   = errors.New("the worker reads too slowly")
	errBroken = errors.New("the worker broke it off")
	errSilent = errors.New("the worker is silent")
	errIdle   = errors.New("nobody uses the connection")
)

func newLine(conn net.Conn, below *nowait, work *sync.WaitGroup, ended func()) *line {
	return &line{conn: conn, below: below, ended: ended, work: work, calls: map[uint64]*call{}}
}

// Read reads from the connection, and notes that something was received.
func (l *line) Read(p []byte) (int, error) {
	n, err := l.conn.Read(p)
	if n > 0 {
		l.heard.Store(true)
	}
	return n, err
}

// begin enters a call and queues its request to be written. It
// reports whether the caller is to flush, after yielding if other calls are in
// progress; errOver and errFull mean that nothing was done.
func (l *line) begin(c *call, m *fabric.Message) (flush, crowd bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.pending
	switch {
	case l.err != nil:
		return false, false, errOver
	case len(p.buf) > maxBacklog:
		return false, false, errFull
	}
	crowd = len(l.calls) > 0
	l.last++
	c.number, c.start = l.last, p.written+uint64(len(p.buf))
	l.calls[c.number] = c
	at := len(p.buf)
	p.buf = fabric.AppendMessage(frame{}.append(p.buf), m)
	frame{frameRequest, c.number, len(p.buf) - at - frameHeader}.put(p.buf[at:])
	return p.elect(), crowd, nil
}

// flush writes until there is nothing to be written. When the worker does not
// read, another goroutine goes on.
func (l *line) flush() {
	var b []byte
	for {
		l.mu.Lock()
		b = l.pending.take(b)
		l.mu.Unlock()
		if len(b) == 0 {
			return
		}
		if _, err := l.conn.Write(b); err != nil {
			l.end(err)
			return
		}
		if l.below.kept() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.err == nil {
				l.work.Go(l.flushKept)
			}
			return
		}
	}
}

func (l *line) flushKept() {
	if err := l.below.Flush(); err != nil {
		l.end(err)
		return
	}
	l.flush()
}

// say sends an empty frame.
func (l *line) say(f frame) {
	l.mu.Lock()
	flush := false
	if l.err == nil {
		l.pending.buf = f.append(l.pending.buf)
		flush = l.pending.elect()
	}
	l.mu.Unlock()
	if flush {
		l.flush()
	}
}

// leave removes from the table a call whose caller leaves, and notifies the worker.
// Without ok it has an outcome, which its channel receives.
func (l *line) leave(c *call) (ok bool) {
	l.mu.Lock()
	ok = l.calls[c.number] == c
	delete(l.calls, c.number)
	l.mu.Unlock()
	if ok {
		l.say(frame{kind: frameLeave, number: c.number})
	}
	return ok
}

// serve reads until the connection ends.
func (l *line) serve(r *bufio.Reader) {
	l.mu.Lock()
	if l.err == nil {
		l.used = time.Now()
		l.timer = time.AfterFunc(pingAfter, l.tick)
	}
	l.mu.Unlock()
	for {
		if err := l.hear(r); err != nil {
			l.end(err)
			return
		}
	}
}

// hear handles one frame.
func (l *line) hear(r *bufio.Reader) error {
	f, err := nextFrame(r)
	if err != nil {
		return err
	}
	switch f.kind {
	case framePong:
	case frameBroken:
		l.finish(f.number, 0, nil, errBroken)
	case frameAnswer:
		return l.hearAnswer(r, f)
	default:
		return errStrange
	}
	return nil
}

var errStrange = errors.New("a frame that nobody should send here")

func (l *line) hearAnswer(r *bufio.Reader, f frame) error {
	head, err := r.Peek(statusSize)
	if err != nil {
		return err
	}
	status, size := int(binary.BigEndian.Uint16(head)), f.size-statusSize
	if status < 100 || status > 999 {
		return errStrange
	}
	_, _ = r.Discard(statusSize) // it was peeked at
	if !l.waits(f.number) {
		_, err := io.CopyN(io.Discard, r, int64(size))
		return err
	}
	body, err := take(r, size)
	if err == nil {
		l.finish(f.number, status, body, nil)
	}
	return err
}

// waits reports whether a caller waits for the answer of a call.
func (l *line) waits(number uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[number] != nil
}

// finish sets the outcome of a call, if its caller waits for it.
func (l *line) finish(number uint64, status int, body []byte, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.calls[number]; c != nil {
		delete(l.calls, number)
		c.status, c.body, c.err = status, body, err
		c.done <- c
	}
}

// end breaks the connection. The answers of calls in progress are lost; those of
// which nothing was written were not sent.
func (l *line) end(why error) {
	l.mu.Lock()
	first := l.finishAll(why)
	l.mu.Unlock()
	if first {
		_ = l.conn.Close()
		l.ended()
	}
}

// finishAll is what end does under the lock. It reports whether the line had not
// ended before.
func (l *line) finishAll(why error) (first bool) {
	if l.err != nil {
		return false
	}
	l.err = why
	for _, c := range l.calls {
		c.err, c.unsent = why, c.start >= l.pending.written
		c.done <- c
	}
	clear(l.calls)
	if l.timer != nil {
		l.timer.Stop()
	}
	return true
}

// tick detects a worker whose host has vanished, and closes a connection that
// is idle.
func (l *line) tick() {
	ping, over := l.look(time.Now(), l.heard.Swap(false))
	switch {
	case over:
		_ = l.conn.Close()
		l.ended()
	case ping:
		l.say(frame{kind: framePing})
	}
}

// look decides what a tick does: ask for a sign of life, or end the line. A line
// that is idle ends under the lock, so that no call begins meanwhile.
func (l *line) look(now time.Time, heard bool) (ping, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return false, false
	}
	if len(l.calls) > 0 || l.last != l.seen {
		l.used, l.seen = now, l.last
	}
	next := pingAfter
	switch {
	case now.Sub(l.used) >= clientIdle:
		return false, l.finishAll(errIdle)
	case heard || l.pending.writing: // the one that writes notices by itself
		l.pinged = false
	case l.pinged:
		return false, l.finishAll(errSilent)
	default:
		l.pinged, ping, next = true, true, pingTimeout
	}
	l.timer.Reset(next)
	return ping, false
}
