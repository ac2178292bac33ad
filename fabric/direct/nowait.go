package direct

import (
	"net"
	"sync"
	"time"

	"github.com/bourse-dev/bourse/internal/trywrite"
)

// stall is how long the other end may read nothing of what waits for it.
const stall = 5 * time.Second

// nowait is a connection that is written to without waiting: what the system
// does not take at once is kept until Flush.
type nowait struct {
	net.Conn
	try     func([]byte) (int, error) // what is taken at once
	waiting bool                      // Write is that of the connection below; until no one else uses it

	mu       sync.Mutex
	rest     []byte // not taken yet
	flushing bool   // then all goes into rest
}

func newNowait(c net.Conn) *nowait {
	return &nowait{Conn: c, try: trywrite.To(c), waiting: true}
}

// Write writes or keeps all of p.
func (w *nowait) Write(p []byte) (int, error) {
	if w.waiting {
		return w.Conn.Write(p)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	if !w.flushing && len(w.rest) == 0 {
		var err error
		if n, err = w.try(p); err != nil {
			return n, err
		}
	}
	w.rest = append(w.rest, p[n:]...)
	return len(p), nil
}

// kept reports whether there is something to flush.
func (w *nowait) kept() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.rest) > 0
}

// Flush writes what is kept, and waits as long as the other end goes on
// reading. It is for one goroutine.
func (w *nowait) Flush() error {
	var done []byte
	for {
		w.mu.Lock()
		p := w.rest
		w.flushing = len(p) > 0
		w.rest = done[:0]
		w.mu.Unlock()
		if len(p) == 0 {
			return w.SetWriteDeadline(time.Time{})
		}
		done = p
		for len(p) > 0 {
			if err := w.SetWriteDeadline(time.Now().Add(stall)); err != nil {
				return err
			}
			n, err := w.Conn.Write(p[:min(len(p), step)])
			if err != nil {
				return err
			}
			p = p[n:]
		}
		if cap(done) > maxSpare {
			done = nil
		}
	}
}
