package direct

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// stall is how long the other end may read nothing of what waits for it.
const stall = 5 * time.Second

// nowait is a connection that is written to without waiting: what the system
// does not take at once is kept until Flush.
type nowait struct {
	net.Conn
	raw     syscall.RawConn // nil: nobody knows what would be taken at once
	waiting bool            // Write is that of the connection below; until nobody else uses it

	mu       sync.Mutex
	rest     []byte // not taken yet
	flushing bool   // then all goes into rest
	try      try
}

// try is one attempt to write; it is kept so that it needs no memory.
type try struct {
	p    []byte
	n    int
	err  error
	once func(fd uintptr) bool
}

func newNowait(c net.Conn) *nowait {
	w := &nowait{Conn: c, waiting: true}
	if s, ok := c.(syscall.Conn); ok {
		w.raw, _ = s.SyscallConn()
	}
	w.try.once = func(fd uintptr) bool {
		t := &w.try
		for t.err = syscall.EINTR; errors.Is(t.err, syscall.EINTR); {
			t.n, t.err = syscall.Write(int(fd), t.p)
		}
		return true
	}
	return w
}

// Write writes or keeps all of p.
func (w *nowait) Write(p []byte) (int, error) {
	if w.waiting {
		return w.Conn.Write(p)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	if w.raw != nil && !w.flushing && len(w.rest) == 0 {
		var err error
		if n, err = w.attempt(p); err != nil {
			return n, err
		}
	}
	w.rest = append(w.rest, p[n:]...)
	return len(p), nil
}

// attempt writes what the system takes of p now. w.mu is held.
func (w *nowait) attempt(p []byte) (int, error) {
	t := &w.try
	t.p, t.n, t.err = p, 0, nil
	err := w.raw.Write(t.once)
	t.p = nil
	switch {
	case err != nil:
		return 0, err
	case errors.Is(t.err, syscall.EAGAIN):
		return 0, nil
	case t.err != nil:
		return 0, t.err
	}
	return t.n, nil
}

// kept tells whether there is something to flush.
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
