package warm

import (
	"net"
	"runtime"
	"sync"
)

// Bounds of a writer.
const (
	// maxBacklog is how many bytes may wait to be written before the next caller
	// waits.
	maxBacklog = 1 << 20
	// keepBuffer is the largest buffer that is kept for the next bytes.
	keepBuffer = 64 << 10
	// favors is how many times a caller that came to write its own bytes writes for others,
	// before a goroutine does.
	favors = 4
)

// writer gathers the bytes to be written to a connection.
type writer struct {
	conn net.Conn
	try  func([]byte) (int, error) // writes what goes at once, maybe nothing
	slow sync.WaitGroup            // goroutines that write what did not

	mu      sync.Mutex
	next    []byte        // what waits
	spare   []byte        // the buffer after that
	taken   uint64        // bytes of the stream before next
	written uint64        // bytes of the stream that have left
	busy    bool          // a caller or a goroutine writes
	room    chan struct{} // for callers that wait for space; closed when there is some
	err     error         // the first; nothing is written after it
}

// lock locks the writer for a caller that appends to next. ready is nil when there is
// space; else nothing may be appended, and lock is called again once it is closed.
// unlock must follow.
func (w *writer) lock() (ready <-chan struct{}) {
	w.mu.Lock()
	if w.err != nil || len(w.next) < maxBacklog {
		return nil
	}
	if w.room == nil {
		w.room = make(chan struct{})
	}
	return w.room
}

// at returns where in the stream the next byte will be. The writer is locked.
func (w *writer) at() uint64 { return w.taken + uint64(len(w.next)) }

// unlock sees to it that next is written.
func (w *writer) unlock() {
	lead := !w.busy && len(w.next) > 0 && w.err == nil
	w.busy = w.busy || lead
	w.mu.Unlock()
	if !lead {
		return
	}
	runtime.Gosched() // other runnable goroutines have something to write, too
	for range favors {
		batch := w.take()
		if batch == nil {
			return
		}
		n, err := w.try(batch)
		switch {
		case !w.left(n, batch, err):
			return
		case n < len(batch):
			w.leave(batch[n:])
			return
		}
	}
	w.leave(nil)
}

// leave leaves the writing to a goroutine, first of batch.
func (w *writer) leave(batch []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		w.busy = false
		return
	}
	w.slow.Go(func() { w.rest(batch) })
}

// rest writes on until nothing waits, however long that takes.
func (w *writer) rest(batch []byte) {
	for {
		if len(batch) > 0 {
			n, err := w.conn.Write(batch)
			if !w.left(n, batch, err) {
				return
			}
		}
		if batch = w.take(); batch == nil {
			return
		}
	}
}

// take returns the bytes to be written, nil when there are none: then there is no writer.
func (w *writer) take() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || len(w.next) == 0 {
		w.busy = false
		return nil
	}
	batch := w.next
	w.taken += uint64(len(batch))
	w.next, w.spare = w.spare[:0], nil
	w.makeRoom()
	return batch
}

// left notes that the first n bytes of a batch have left. It is false after an
// error.
func (w *writer) left(n int, batch []byte, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written += uint64(n)
	if n == len(batch) && cap(batch) <= keepBuffer {
		w.spare = batch[:0]
	}
	if err != nil && w.err == nil {
		w.err = err
	}
	if w.err != nil {
		w.busy = false
		w.makeRoom()
	}
	return w.err == nil
}

func (w *writer) makeRoom() {
	if w.room != nil {
		close(w.room)
		w.room = nil
	}
}

// fail ends all writing, closes the connection, and returns how many bytes may
// have left.
func (w *writer) fail(err error) uint64 {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	w.makeRoom()
	w.mu.Unlock()
	_ = w.conn.Close() // its remaining bytes are of no use
	w.slow.Wait()      // they see that, and know what has left
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy { // a caller is still writing
		return w.taken
	}
	return w.written
}
