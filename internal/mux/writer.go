package mux

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxBacklog is how many bytes may wait to be written before the next frame
	// waits.
	maxBacklog = 1 << 20
	// leads is how many times a goroutine that came to write its own frame writes
	// for others, before one that does nothing else does.
	leads = 4
)

// writer gathers the frames that are written to a connection.
type writer struct {
	conn  net.Conn
	pipe  *Pipe         // of a caller: below conn, or that. nil: writes wait
	stall time.Duration // with a wait: how long the other end may read nothing; 0: no limit
	until time.Time     // the write deadline; of the goroutine that writes
	work  sync.WaitGroup
	crowd atomic.Bool // other goroutines may soon have a frame, too

	mu    sync.Mutex
	next  []byte        // what waits
	spare []byte        // memory for what waits after that
	taken uint64        // bytes of the stream before next: some may have left
	busy  bool          // a goroutine writes until next is empty
	last  bool          // then the connection is closed
	space chan struct{} // closed when there is space; nil when no one waits for some
	err   error         // the first; nothing is written after it
}

// put has a frame written, with the bytes that follow its line, and stores where
// it begins in the stream before it can leave. If too much waits it returns a
// channel that is closed when there is space; a frame of urgent ones, which are
// small and few, is written in any case.
func (w *writer) put(f *frame, body []byte, start *uint64, urgent bool) (full <-chan struct{}, err error) {
	w.mu.Lock()
	switch {
	case w.err != nil:
		defer w.mu.Unlock()
		return nil, w.err
	case len(w.next) >= maxBacklog && !urgent:
		defer w.mu.Unlock()
		if w.space == nil {
			w.space = make(chan struct{})
		}
		return w.space, nil
	}
	if start != nil {
		*start = w.taken + uint64(len(w.next))
	}
	w.next = append(f.append(w.next), body...)
	lead := !w.busy
	w.busy = true
	w.mu.Unlock()
	if lead {
		w.lead()
	}
	return nil, nil
}

// putAll is put for a goroutine that may wait for space.
func (w *writer) putAll(f *frame, body []byte) {
	for {
		full, _ := w.put(f, body, nil, false) // after an error there is no one to write to
		if full == nil {
			return
		}
		<-full
	}
}

// lead writes what waits, and leaves the rest to another goroutine.
func (w *writer) lead() {
	if w.crowd.Load() {
		runtime.Gosched() // a system call for each frame is most of what a call costs
	}
	for range leads {
		if !w.writeNext() {
			return
		}
		if w.pipe != nil && w.pipe.kept() {
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.work.Go(w.follow)
	}
}

// follow writes until nothing waits, however long that takes.
func (w *writer) follow() {
	for more := true; more; more = w.writeNext() {
		if w.pipe == nil {
			continue
		}
		if err := w.pipe.flush(); err != nil {
			w.fail(err)
			return
		}
	}
}

// writeNext writes what waits now. It reports whether it has written, and goes
// on being the one who does.
func (w *writer) writeNext() bool {
	w.mu.Lock()
	batch := w.next
	if w.busy = len(batch) > 0 && w.err == nil; !w.busy {
		last := w.last
		w.mu.Unlock()
		if last {
			w.fail(net.ErrClosed)
		}
		return false
	}
	w.next, w.spare = w.spare, nil
	w.taken += uint64(len(batch))
	w.makeSpace()
	w.mu.Unlock()
	if err := w.write(batch); err != nil {
		w.fail(err)
		return false
	}
	if cap(batch) <= maxSpare {
		w.mu.Lock()
		w.spare = batch[:0]
		w.mu.Unlock()
	}
	return true
}

func (w *writer) write(b []byte) error {
	if w.pipe != nil {
		_, err := w.conn.Write(b)
		return err
	}
	for len(b) > 0 {
		// A deadline for each write would cost as much as the rest of it.
		if now := time.Now(); w.stall > 0 && w.until.Sub(now) < w.stall {
			w.until = now.Add(2 * w.stall)
			_ = w.conn.SetWriteDeadline(w.until) // an error is the write's, too
		}
		n, err := w.conn.Write(b[:min(len(b), step)])
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// makeSpace wakes those that wait for space. w.mu is held.
func (w *writer) makeSpace() {
	if w.space != nil {
		close(w.space)
		w.space = nil
	}
}

// writing reports whether something is being written.
func (w *writer) writing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.busy
}

// failed returns why nothing is written any more, nil if that is not so, and how
// many bytes may have left.
func (w *writer) failed() (taken uint64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.taken, w.err
}

// finish closes the connection once all that waits has been written.
func (w *writer) finish() {
	w.mu.Lock()
	w.last = true
	busy := w.busy
	w.mu.Unlock()
	if !busy {
		w.fail(net.ErrClosed)
	}
}

// fail ends all writing and closes the connection.
func (w *writer) fail(err error) {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	w.makeSpace()
	w.mu.Unlock()
	_ = w.conn.Close() // what is left has no reader
}
