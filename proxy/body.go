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

// maxMemoryBody is the number of bytes of a body that are stored for further attempts if
// there are no spools.
const maxMemoryBody = 64 << 10

var (
	errBodyDiscarded = errors.New("the body of the request is no longer stored")
	errBodyEnded     = errors.New("the request has ended")
)

// bodyStore stores the part of a body that has been read. It is not safe for concurrent use.
type bodyStore interface {
	Append(p []byte) error // after an error nothing is stored
	ReadAt(p []byte, at int64) (int, error)
	Close()
}

// newBodyStore returns an empty store for one request.
func (p *Proxy) newBodyStore() bodyStore {
	if p.Replays != nil && p.Replays.Spools != nil {
		return p.Replays.Spools.New()
	}
	return &memoryBody{}
}

// body is a request body that successive attempts can read from its start. As long as its
// store accepts the data, everything read from the client is stored until the client
// receives a reply. A failed attempt may still be reading when the next attempt begins; the
// lock ensures that its data is stored, too.
type body struct {
	from    io.ReadCloser
	control *http.ResponseController
	stalled time.Duration
	timed   bool // we set the connection's read deadline while the body is read

	ended     atomic.Bool
	settled   atomic.Bool // there will be no other attempt
	broken    atomic.Bool // the client failed to send the whole body
	allRead   atomic.Bool // the client has sent the whole body
	read      atomic.Int64
	discarded atomic.Pointer[error] // why the body is no longer stored; nil: it is stored

	mu     sync.Mutex  // held while reading from the client
	store  bodyStore   // data read so far
	newest *bodyReader // reader of the latest attempt
	err    error       // error or io.EOF that ended reading from the client
	late   bool        // err is a timeout
	timeAt time.Time   // when the read deadline was last set
}

// reader returns a reader of the whole body for one attempt.
func (b *body) reader() *bodyReader { return &bodyReader{body: b} }

// unread reports whether no byte has been read from the client.
func (b *body) unread() bool { return b == nil || b.read.Load() == 0 }

// complete reports whether the whole body has been read from the client.
func (b *body) complete() bool { return b == nil || b.allRead.Load() }

// replayable reports whether another attempt can read the body from its start.
func (b *body) replayable() bool { return b == nil || b.discarded.Load() == nil }

// replayError returns why the body is not replayable, or nil if it is.
func (b *body) replayError() error {
	if b.replayable() {
		return nil
	}
	return *b.discarded.Load()
}

// settle declares the current attempt the last one. The stored data is released once that
// attempt has read it.
func (b *body) settle() {
	if b != nil {
		b.settled.Store(true)
		b.release()
	}
}

// clientFault returns the error to report if the client failed to send the whole body, and
// nil otherwise.
func (b *body) clientFault() error {
	if b == nil || !b.broken.Load() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.late {
		return &statusError{status: http.StatusRequestTimeout, text: "the request's body did not arrive in time", err: b.err}
	}
	return &statusError{status: http.StatusBadRequest, text: "the request's body is malformed or incomplete", err: b.err}
}

// end makes all further reads fail.
func (b *body) end() {
	b.ended.Store(true)
	b.release()
}

// release discards stored data that nobody will read again. If a read is waiting for the
// client, release does nothing; that read calls release when it returns.
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

// bodyReader reads the body for one attempt.
type bodyReader struct {
	body   *body
	at     int64 // guarded by the body's lock
	closed atomic.Bool
}

// Close implements io.Closer. It does not wait for a read in progress.
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

// next reads more data from the client and stores it.
func (b *body) next(p []byte) (int, error) {
	if now := time.Now(); b.timed && now.Sub(b.timeAt) > b.stalled/8 {
		_ = b.control.SetReadDeadline(now.Add(b.stalled)) // not every ResponseWriter supports deadlines
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
		_ = b.control.SetReadDeadline(time.Time{}) // the server now waits for the next request
	}
	return n, err
}

// memoryBody is a bodyStore in memory. It stores up to maxMemoryBody bytes.
type memoryBody struct{ bytes []byte }

// Append implements bodyStore.
func (m *memoryBody) Append(p []byte) error {
	if len(m.bytes)+len(p) > maxMemoryBody {
		m.bytes = nil
		return bourse.Errorf(bourse.CodeFailedPrecondition, "the request's body is larger than %d bytes", maxMemoryBody)
	}
	m.bytes = append(m.bytes, p...)
	return nil
}

// ReadAt implements bodyStore.
func (m *memoryBody) ReadAt(p []byte, at int64) (int, error) { return copy(p, m.bytes[at:]), nil }

// Close implements bodyStore.
func (m *memoryBody) Close() { m.bytes = nil }
