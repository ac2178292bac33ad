package mux

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxBacklog is the number of waiting bytes at which new frames have to wait.
	maxBacklog = 1 << 20
	// maxLeads limits how often a goroutine that adds a frame writes waiting data before a separate goroutine takes
	// over.
	maxLeads = 4
)

// writer batches the frames that are written to a connection.
type writer struct {
	conn      net.Conn
	pipe      *Pipe         // the pipe of a caller's connection: conn itself, or the connection below it; if nil, writes block
	stall     time.Duration // for blocking writes: how long the other end may stop reading; 0 means no limit
	until     time.Time     // the current write deadline; used only by the writing goroutine
	work      sync.WaitGroup
	contended atomic.Bool // whether other goroutines are likely to add frames soon

	mu      sync.Mutex
	next    []byte        // waiting data
	spare   []byte        // memory for the next waiting data
	written uint64        // position of next in the stream; the bytes before it may have been sent
	busy    bool          // whether a goroutine is writing until next is empty
	last    bool          // whether to close the connection once next is empty
	space   chan struct{} // closed when there is space; nil if nobody waits for it
	err     error         // the first error; nothing is written after it
}

// put writes a frame's line and the body that follows it. If start is not nil, put sets *start to
// the frame's position in the stream, before any part of the frame can be sent. If too much data is
// waiting, put writes nothing and returns a channel that is closed when there is space. Urgent
// frames never have to wait, because they are small and rare.
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
		*start = w.written + uint64(len(w.next))
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

// putAll is like put, but waits for space.
func (w *writer) putAll(f *frame, body []byte) {
	for {
		full, _ := w.put(f, body, nil, false) // an error means that the other end has disconnected
		if full == nil {
			return
		}
		<-full
	}
}

// lead writes waiting data up to maxLeads times. If data may still be waiting, it starts a
// goroutine that writes the rest.
func (w *writer) lead() {
	if w.contended.Load() {
		runtime.Gosched() // lets other goroutines add frames, because system calls are most of a call's cost
	}
	for range maxLeads {
		if !w.writeNext() {
			return
		}
		if w.pipe != nil && w.pipe.buffered() {
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.work.Go(w.follow)
	}
}

// follow writes until no data is waiting, however long that takes.
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

// writeNext writes the pending data. It returns false if nothing was pending or the write failed.
// If it returns true, the caller remains the writing goroutine.
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
	w.written += uint64(len(batch))
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
		// Setting a deadline for each write would double the cost of the write.
		if now := time.Now(); w.stall > 0 && w.until.Sub(now) < w.stall {
			w.until = now.Add(2 * w.stall)
			_ = w.conn.SetWriteDeadline(w.until) // a failed write will report the error
		}
		n, err := w.conn.Write(b[:min(len(b), step)])
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// makeSpace wakes the goroutines that wait for space. w.mu must be held.
func (w *writer) makeSpace() {
	if w.space != nil {
		close(w.space)
		w.space = nil
	}
}

// writing reports whether a goroutine is writing.
func (w *writer) writing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.busy
}

// failed returns the error that ended writing, if any, and the number of bytes that may
// have been sent.
func (w *writer) failed() (taken uint64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.written, w.err
}

// finish closes the connection once all waiting data has been written.
func (w *writer) finish() {
	w.mu.Lock()
	w.last = true
	busy := w.busy
	w.mu.Unlock()
	if !busy {
		w.fail(net.ErrClosed)
	}
}

// fail stops writing and closes the connection.
func (w *writer) fail(err error) {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	w.makeSpace()
	w.mu.Unlock()
	_ = w.conn.Close()
}
