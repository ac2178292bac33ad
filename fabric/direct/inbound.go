package direct

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// callerSilence is how long a caller may send nothing. It asks for a sign of life
// more often than that.
const callerSilence = 4 * (pingAfter + pingTimeout)

// inbound is a worker's end of a connection of calls. One goroutine at a time
// reads; a goroutine that has an answer writes it, unless another is writing, which then
// writes that, too.
type inbound struct {
	desk    *desk
	conn    net.Conn
	reader  *bufio.Reader // of the goroutine that reads
	like    *http.Request // the one that the connection began with: requests are of the same caller
	handler http.Handler
	heard   atomic.Bool // since the last look
	until   time.Time   // the write deadline; of the goroutine that writes

	mu      sync.Mutex
	room    sync.Cond // more answers may be queued, or the connection has ended
	calls   map[uint64]*served
	pending pending
	last    bool // the connection ends with what is pending
	over    bool
	timer   *time.Timer
}

// served is a call of another's.
type served struct {
	number uint64
	fabric.Message
	ctx   context.Context //nolint:containedctx // the handler's, passed to the goroutine that serves it
	cut   context.CancelCauseFunc
	crowd bool // there is more to be read

	// Under the connection's lock.
	left   bool // the answer is no longer waited for
	broken bool // it was cut off: there is no answer, even if its handler returns one
}

// newInbound makes the connection of a request, which ends with end; ahead may
// have bytes of it that were read already.
func newInbound(d *desk, conn net.Conn, ahead *bufio.Reader, r *http.Request, handler http.Handler) *inbound {
	in := &inbound{
		desk: d, conn: conn, handler: handler, calls: map[uint64]*served{},
		like: r.WithContext(context.WithoutCancel(r.Context())),
	}
	in.room.L = &in.mu
	var from io.Reader = in
	if n := ahead.Buffered(); n > 0 {
		first, _ := ahead.Peek(n) // they are there
		from = io.MultiReader(bytes.NewReader(slices.Clone(first)), in)
	}
	in.reader = bufio.NewReaderSize(from, readAhead)
	in.timer = time.AfterFunc(callerSilence, in.look)
	in.pending.buf = []byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + callsProtocol + "\r\n\r\n")
	return in
}

// look ends the connection when nothing was received since the last look.
func (in *inbound) look() {
	if !in.heard.Swap(false) {
		in.end()
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.over {
		in.timer.Reset(callerSilence)
	}
}

// Read reads from the connection, and notes that something was received.
func (in *inbound) Read(p []byte) (int, error) {
	n, err := in.conn.Read(p)
	if n > 0 {
		in.heard.Store(true)
	}
	return n, err
}

// read reads until there is a call to be served. The desk has another goroutine
// read on. Nil: the connection has ended.
func (in *inbound) read() *served {
	for {
		c, err := in.next()
		if err != nil {
			in.end()
			return nil
		}
		if c == nil {
			continue
		}
		err = in.desk.begin(in)
		if err == nil {
			return c
		}
		in.turnAway(c, err)
	}
}

// next takes one frame, which may be a request.
func (in *inbound) next() (*served, error) {
	f, err := nextFrame(in.reader)
	if err != nil {
		return nil, err
	}
	switch f.kind {
	case frameRequest:
		return in.takeRequest(f)
	case frameLeave:
		in.mu.Lock()
		if c := in.calls[f.number]; c != nil {
			c.left = true
			c.cut(context.Canceled)
		}
		in.mu.Unlock()
	case framePing:
		in.say(frame{kind: framePong}.append(nil))
	default:
		return nil, errStrange
	}
	return nil, nil
}

func (in *inbound) takeRequest(f frame) (*served, error) {
	b, err := take(in.reader, f.size)
	if err != nil {
		return nil, err
	}
	c := &served{number: f.number, crowd: in.reader.Buffered() > 0}
	if c.Message, err = fabric.ParseMessage(b); err != nil {
		return nil, err
	}
	c.ctx, c.cut = context.WithCancelCause(in.like.Context())
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.over || in.calls[c.number] != nil {
		c.cut(nil)
		return nil, errStrange
	}
	in.calls[c.number] = c
	return c, nil
}

// answerRoom is what comes before an answer's body.
const answerRoom = frameHeader + statusSize

// turnAway answers a call that is not served.
func (in *inbound) turnAway(c *served, why error) {
	h := fabric.Hold(answerRoom)
	fabric.WriteFailure(h, bourse.Errorf(bourse.CodeUnavailable, "%w", why))
	in.answer(c, h, true)
}

// serve has the handler answer a call.
func (in *inbound) serve(c *served) {
	h := fabric.Hold(answerRoom)
	whole := fabric.ServeMessage(c.ctx, in.like, &c.Message, in.handler, h, in.desk.log)
	in.answer(c, h, whole)
}

// answer sends a reply that is held, and releases it.
func (in *inbound) answer(c *served, h *fabric.Held, whole bool) {
	defer h.Release()
	defer c.cut(nil)
	b := h.Bytes()
	in.mu.Lock()
	delete(in.calls, c.number)
	crowd := c.crowd || len(in.calls) > 0
	if c.left {
		in.mu.Unlock()
		return
	}
	if whole && !c.broken {
		frame{frameAnswer, c.number, len(b) - frameHeader}.put(b)
		binary.BigEndian.PutUint16(b[frameHeader:], uint16(h.Status()))
	} else {
		b = b[:frameHeader]
		frame{kind: frameBroken, number: c.number}.put(b)
	}
	in.post(b, crowd)
}

// say sends a frame that is not an answer.
func (in *inbound) say(b []byte) {
	in.mu.Lock()
	in.post(b, false)
}

// post writes b, or leaves that to the goroutine that writes; while too much waits for a caller
// that does not read it waits, too. in.mu is held, and is not afterwards.
func (in *inbound) post(b []byte, crowd bool) {
	p := &in.pending
	for len(p.buf) > maxBacklog && !in.over {
		in.room.Wait()
	}
	if in.over {
		in.mu.Unlock()
		return
	}
	p.buf = append(p.buf, b...)
	mine := len(p.buf) > 0 && p.elect()
	in.mu.Unlock()
	if mine {
		if crowd {
			yield()
		}
		in.flush()
	}
}

// flush writes until there is nothing to be written.
func (in *inbound) flush() {
	var b []byte
	for {
		in.mu.Lock()
		b = in.pending.take(b)
		last := len(b) == 0 && in.last
		in.mu.Unlock()
		if last {
			in.end()
		}
		if len(b) == 0 {
			return
		}
		if len(b) > maxBacklog {
			in.room.Broadcast()
		}
		// A deadline for each write would cost as much as the rest of it.
		if now := time.Now(); in.until.Sub(now) < stall {
			in.until = now.Add(2 * stall)
			_ = in.conn.SetWriteDeadline(in.until) // an error is the write's, too
		}
		if _, err := in.conn.Write(b); err != nil {
			in.end()
			return
		}
	}
}

// cut cancels all calls. Their callers learn that there is no answer, as those of
// requests do: the answer of a canceled handler is not what it did.
func (in *inbound) cut(why error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, c := range in.calls {
		c.broken = true
		c.cut(why)
	}
}

// finish ends the connection when all that is pending has been written.
func (in *inbound) finish() {
	in.mu.Lock()
	in.last = true
	writing := in.pending.writing
	in.mu.Unlock()
	if !writing {
		in.end()
	}
}

// end breaks the connection, and cancels its calls: no caller waits for them.
func (in *inbound) end() {
	in.mu.Lock()
	first := !in.over
	in.over = true
	for _, c := range in.calls {
		c.left = true
		c.cut(context.Canceled)
	}
	in.timer.Stop()
	in.mu.Unlock()
	if first {
		in.room.Broadcast()
		_ = in.conn.Close()
		in.desk.leave(in)
	}
}
