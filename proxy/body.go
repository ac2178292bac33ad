package proxy

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
)

// maxKept is how much of a body is kept for another attempt, in bytes, where there
// are no spools.
const maxKept = 64 << 10

var (
	errBodyGone  = errors.New("the body of the request is not kept any more")
	errBodyEnded = errors.New("the request has ended")
)

// keeper keeps what was read of a body. It is for one goroutine at a time.
type keeper interface {
	Append(p []byte) error // after an error nothing is kept
	ReadAt(p []byte, at int64) (int, error)
	Close()
}

// keeper returns one for a request.
func (p *Proxy) keeper() keeper {
	if p.Replays != nil && p.Replays.Spools != nil {
		return p.Replays.Spools.New()
	}
	return &inMemory{}
}

// body is the body of a request, which several attempts read one after the other:
// it is kept, as far as its keeper does, until one of them has a reply that the
// client gets. An attempt that has failed may still be reading when the next one
// begins; the lock makes what that read gets part of what is kept.
type body struct {
	from    io.ReadCloser
	control *http.ResponseController
	stalled time.Duration
	timed   bool // the connection's read deadline is ours while the body is read

	ended    atomic.Bool
	settled  atomic.Bool // there will be no other attempt
	broken   atomic.Bool // the client did not send all of it
	complete atomic.Bool // the client has sent all of it
	read     atomic.Int64
	lost     atomic.Pointer[error] // why it is not kept any more; nil: it is

	mu     sync.Mutex  // held while reading from the client
	kept   keeper      // what was read
	newest *bodyReader // that the last attempt has
	err    error       // that reading ended with
	late   bool        // that was a time limit's end
	timeAt time.Time   // when the deadline was set last
}

// reader returns the body from its start, for one attempt.
func (b *body) reader() *bodyReader { return &bodyReader{of: b} }

// untouched reports whether nothing was read of it.
func (b *body) untouched() bool { return b == nil || b.read.Load() == 0 }

// whole reports whether all of it was read from the client.
func (b *body) whole() bool { return b == nil || b.complete.Load() }

// again reports whether another attempt could read it from its start.
func (b *body) again() bool { return b == nil || b.lost.Load() == nil }

// why returns why it could not; nil when it could.
func (b *body) why() error {
	if b.again() {
		return nil
	}
	return *b.lost.Load()
}

// settle drops what is kept as soon as the last attempt has read it.
func (b *body) settle() {
	if b != nil {
		b.settled.Store(true)
		b.tidy()
	}
}

// fault returns what is wrong with a body that its client did not send all of, nil
// for any other.
func (b *body) fault() error {
	if b == nil || !b.broken.Load() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.late {
		return &refusal{status: http.StatusRequestTimeout, text: "the request's body did not arrive in time", err: b.err}
	}
	return &refusal{status: http.StatusBadRequest, text: "the request's body is malformed or broke off", err: b.err}
}

// end stops all reads that begin from now on.
func (b *body) end() {
	b.ended.Store(true)
	b.tidy()
}

// tidy drops what is kept and no one reads any more. While a read waits for the
// client it does nothing: that read does it when it returns.
func (b *body) tidy() {
	if b.mu.TryLock() {
		if b.ended.Load() || b.newest == nil || b.newest.at == b.read.Load() {
			b.drop(errBodyGone)
		}
		b.mu.Unlock()
	}
}

func (b *body) drop(why error) {
	b.lost.CompareAndSwap(nil, &why)
	b.kept.Close()
}

// bodyReader is the body as one attempt reads it.
type bodyReader struct {
	of     *body
	at     int64 // guarded by the body's lock
	closed atomic.Bool
}

// Close implements io.Closer. It does not wait for a read.
func (r *bodyReader) Close() error { r.closed.Store(true); return nil }

// Read implements io.Reader.
func (r *bodyReader) Read(p []byte) (int, error) {
	n, err := r.next(p)
	if b := r.of; b.settled.Load() || b.ended.Load() {
		b.tidy()
	}
	return n, err
}

func (r *bodyReader) next(p []byte) (n int, err error) {
	b := r.of
	b.mu.Lock()
	defer b.mu.Unlock()
	total := b.read.Load()
	switch {
	case r.closed.Load() || b.ended.Load():
		return 0, errBodyEnded
	case r.at < total && !b.again():
		return 0, errBodyGone
	}
	b.newest = r
	switch {
	case r.at < total:
		n, err = b.kept.ReadAt(p[:min(int64(len(p)), total-r.at)], r.at)
	case b.err != nil:
		return 0, b.err
	default:
		n, err = b.next(p)
	}
	r.at += int64(n)
	return n, err
}

// next reads from the client.
func (b *body) next(p []byte) (int, error) {
	if now := time.Now(); b.timed && now.Sub(b.timeAt) > b.stalled/8 {
		_ = b.control.SetReadDeadline(now.Add(b.stalled)) // not every writer has one
		b.timeAt = now
	}
	n, err := b.from.Read(p)
	b.read.Add(int64(n))
	if b.settled.Load() {
		b.drop(errBodyGone)
	} else if n > 0 && b.again() {
		if lost := b.kept.Append(p[:n]); lost != nil {
			b.drop(lost)
		}
	}
	switch err {
	case nil:
	case io.EOF:
		b.complete.Store(true)
	default:
		b.broken.Store(true)
		b.late = timedOut(err)
	}
	if b.err = err; err != nil && b.timed {
		_ = b.control.SetReadDeadline(time.Time{}) // the server now waits for what follows
	}
	return n, err
}

// inMemory keeps a body of up to 64 KiB.
type inMemory struct{ bytes []byte }

// Append implements keeper.
func (m *inMemory) Append(p []byte) error {
	if len(m.bytes)+len(p) > maxKept {
		m.bytes = nil
		return bourse.Errorf(bourse.CodeFailedPrecondition, "the request's body is larger than %d bytes", maxKept)
	}
	m.bytes = append(m.bytes, p...)
	return nil
}

// ReadAt implements keeper.
func (m *inMemory) ReadAt(p []byte, at int64) (int, error) { return copy(p, m.bytes[at:]), nil }

// Close implements keeper.
func (m *inMemory) Close() { m.bytes = nil }
