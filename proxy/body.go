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
const maxMemoryBody = 64 << 10

var (
	errBodyDiscarded = errors.New("the body of the request is not kept any more")
	errBodyEnded     = errors.New("the request has ended")
)

// keeper keeps what was read of a body. It is for one goroutine at a time.
type bodyStore interface {
	Append(p []byte) error // after an error nothing is kept
	ReadAt(p []byte, at int64) (int, error)
	Close()
}

// keeper returns one for a request.
func (p *Proxy) newBodyStore() bodyStore {
	if p.Replays != nil && p.Replays.Spools != nil {
		return p.Replays.Spools.New()
	}
	return &memoryBody{}
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

	ended     atomic.Bool
	settled   atomic.Bool // there will be no other attempt
	broken    atomic.Bool // the client did not send all of it
	allRead   atomic.Bool // the client has sent all of it
	read      atomic.Int64
	discarded atomic.Pointer[error] // why it is not kept any more; nil: it is

	mu     sync.Mutex  // held while reading from the client
	store  bodyStore   // what was read
	newest *bodyReader // that the last attempt has
	err    error       // that reading ended with
	late   bool        // that was a time limit's end
	timeAt time.Time   // when the deadline was set last
}

// reader returns the body from its start, for one attempt.
func (b *body) reader() *bodyReader { return &bodyReader{body: b} }

// untouched reports whether nothing was read of it.
func (b *body) unread() bool { return b == nil || b.read.Load() == 0 }

// whole reports whether all of it was read from the client.
func (b *body) complete() bool { return b == nil || b.allRead.Load() }

// again reports whether another attempt could read it from its start.
func (b *body) replayable() bool { return b == nil || b.discarded.Load() == nil }

// why returns why it could not; nil when it could.
func (b *body) replayError() error {
	if b.replayable() {
		return nil
	}
	return *b.discarded.Load()
}

// settle drops what is kept as soon as the last attempt has read it.
func (b *body) settle() {
	if b != nil {
		b.settled.Store(true)
		b.release()
	}
}

// fault returns what is wrong with a body that its client did not send all of, nil
// for any other.
func (b *body) clientFault() error {
	if b == nil || !b.broken.Load() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.late {
		return &statusError{status: http.StatusRequestTimeout, text: "the request's body did not arrive in time", err: b.err}
	}
	return &statusError{status: http.StatusBadRequest, text: "the request's body is malformed or broke off", err: b.err}
}

// end stops all reads that begin from now on.
func (b *body) end() {
	b.ended.Store(true)
	b.release()
}

// tidy drops what is kept and no one reads any more. While a read waits for the
// client it does nothing: that read does it when it returns.
func (b *body) release() {
	if b.mu.TryLock() {
		if b.ended.Load() || b.newest == nil || b.newest.at == b.read.Load() {
			b.drop(errBodyDiscarded)
		}
		b.mu.Unlock()
	}
}

func (b *body) drop(why error) {
	b.discarded.CompareAndSwap(nil, &why)
	b.store.Close()
}

// bodyReader is the body as one attempt reads it.
type bodyReader struct {
	body   *body
	at     int64 // guarded by the body's lock
	closed atomic.Bool
}

// Close implements io.Closer. It does not wait for a read.
func (r *bodyReader) Close() error { r.closed.Store(true); return nil }

// Read implements io.Reader.
func (r *bodyReader) Read(p []byte) (int, error) {
	n, err := r.next(p)
	if b := r.body; b.settled.Load() || b.ended.Load() {
		b.release()
	}
	return n, err
}

func (r *bodyReader) next(p []byte) (n int, err error) {
	b := r.body
	b.mu.Lock()
	defer b.mu.Unlock()
	total := b.read.Load()
	switch {
	case r.closed.Load() || b.ended.Load():
		return 0, errBodyEnded
	case r.at < total && !b.replayable():
		return 0, errBodyDiscarded
	}
	b.newest = r
	switch {
	case r.at < total:
		n, err = b.store.ReadAt(p[:min(int64(len(p)), total-r.at)], r.at)
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
		b.drop(errBodyDiscarded)
	} else if n > 0 && b.replayable() {
		if lost := b.store.Append(p[:n]); lost != nil {
			b.drop(lost)
		}
	}
	switch err {
	case nil:
	case io.EOF:
		b.allRead.Store(true)
	default:
		b.broken.Store(true)
		b.late = isTimeout(err)
	}
	if b.err = err; err != nil && b.timed {
		_ = b.control.SetReadDeadline(time.Time{}) // the server now waits for what follows
	}
	return n, err
}

// inMemory keeps a body of up to 64 KiB.
type memoryBody struct{ bytes []byte }

// Append implements keeper.
func (m *memoryBody) Append(p []byte) error {
	if len(m.bytes)+len(p) > maxMemoryBody {
		m.bytes = nil
		return bourse.Errorf(bourse.CodeFailedPrecondition, "the request's body is larger than %d bytes", maxMemoryBody)
	}
	m.bytes = append(m.bytes, p...)
	return nil
}

// ReadAt implements keeper.
func (m *memoryBody) ReadAt(p []byte, at int64) (int, error) { return copy(p, m.bytes[at:]), nil }

// Close implements keeper.
func (m *memoryBody) Close() { m.bytes = nil }
