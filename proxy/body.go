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

// maxMemoryBody is the maximum size, in bytes, of a body that is stored for subsequent attempts if no Spools are
// configured.
const maxMemoryBody = 64 << 10

var (
	errBodyDiscarded = errors.New("the request's body is no longer stored")
	errBodyEnded     = errors.New("the request has ended")
)

// bodyStore stores the part of a request's body that has been read so far. It is not safe for
// concurrent use.
type bodyStore interface {
	Append(p []byte) error // after an error, no more data is stored
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

// body is a request's body. Each attempt can read the body from its start, because all data from the client is stored
// until the client receives a reply or the store refuses more data. A failed attempt may still be reading when the
// next one begins. The lock ensures that the data that the failed attempt reads is stored, too.
type body struct {
	from    io.ReadCloser
	control *http.ResponseController
	stalled time.Duration
	timed   bool // whether to set the connection's read deadline while reading the body

	ended     atomic.Bool
	settled   atomic.Bool // the current attempt is the last one
	broken    atomic.Bool // the client did not send the whole body
	allRead   atomic.Bool // the client has sent the whole body
	read      atomic.Int64
	discarded atomic.Pointer[error] // why the body is no longer stored; nil: the body is stored

	mu       sync.Mutex  // held while reading from the client
	store    bodyStore   // the data read so far
	newest   *bodyReader // the reader of the latest attempt
	err      error       // error that ended reading from the client, including io.EOF
	timedOut bool        // whether err is a timeout
	timeAt   time.Time   // when the read deadline was last set
}

// reader returns a reader for one attempt, which reads the body from its start.
func (b *body) reader() *bodyReader { return &bodyReader{body: b} }

// unread reports whether no byte of the body has been read from the client.
func (b *body) unread() bool { return b == nil || b.read.Load() == 0 }

// complete reports whether the whole body has been read from the client.
func (b *body) complete() bool { return b == nil || b.allRead.Load() }

// replayable reports whether another attempt can read the body from its start.
func (b *body) replayable() bool { return b == nil || b.discarded.Load() == nil }

// replayError returns the reason why the body is not replayable, or nil if it is.
func (b *body) replayError() error {
	if b.replayable() {
		return nil
	}
	return *b.discarded.Load()
}

// settle records that the current attempt is the last one. The stored data is released once this attempt has read it.
func (b *body) settle() {
	if b != nil {
		b.settled.Store(true)
		b.release()
	}
}

// clientFault returns an error for the client if the client failed to send the whole body, and otherwise nil.
func (b *body) clientFault() error {
	if b == nil || !b.broken.Load() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timedOut {
		return &statusError{status: http.StatusRequestTimeout, text: "the request's body did not arrive in time", err: b.err}
	}
	return &statusError{status: http.StatusBadRequest, text: "the request's body is malformed or incomplete", err: b.err}
}

// end makes all further reads fail, and releases the data.
func (b *body) end() {
	b.ended.Store(true)
	b.release()
}

// release discards the stored data if nobody will read it again. It has no effect while a read is waiting for the
// client, because that read calls release when it returns.
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
		_ = b.control.SetReadDeadline(now.Add(b.stalled)) // ignore errors: not every ResponseWriter supports deadlines
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
		b.timedOut = isTimeout(err)
	}
	if b.err = err; err != nil && b.timed {
		_ = b.control.SetReadDeadline(time.Time{}) // no deadline, because the server now waits for the next request
	}
	return n, err
}

// memoryBody is a bodyStore in memory. It stores at most maxMemoryBody bytes.
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
