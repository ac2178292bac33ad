package kv

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/bourse-dev/bourse"
)

// maxBatch bounds how many transactions share one commit, so that the first
// does not wait for too many others.
const maxBatch = 256

var errClosed = bourse.Errorf(bourse.CodeUnavailable, "the store is closed")

// Commit is a submitted transaction.
type Commit struct {
	fn      func(Tx) error
	applied chan struct{}
	done    chan struct{}
	err     error // of the transaction; set before done is closed
	undone  bool  // the disk did not take it, with all others of its batch; set like err
}

// Applied is closed when the function has run without an error and its effects
// are part of every later transaction, or when it has failed (then Wait does
// not block). It is not durable yet.
func (c *Commit) Applied() <-chan struct{} { return c.applied }

// Wait blocks until the transaction is durable or has failed. When ctx ends
// first the outcome is unknown and the transaction goes on.
func (c *Commit) Wait(ctx context.Context) error {
	if c.finished() {
		return c.err
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return fmt.Errorf("wait for the store: %w", ctx.Err())
	}
}

// finished reports whether Wait would not block.
func (c *Commit) finished() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *Commit) finish(err error) {
	c.err = err
	close(c.done)
	select {
	case <-c.applied:
	default:
		close(c.applied)
	}
}

// Submit queues fn, which will be executed in a read-write transaction on the
// store's own goroutine, after everything submitted before. It does not block.
// fn must not block either; its error undoes all that it did and is what Wait
// returns.
func (d *DB) Submit(fn func(Tx) error) *Commit { return d.submit(fn, false) }

func (d *DB) submit(fn func(Tx) error, relaxed bool) *Commit {
	c := &Commit{fn: fn, applied: make(chan struct{}), done: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch failed := d.failure(); {
	case failed != nil:
		c.finish(failed)
	case d.closed:
		c.finish(errClosed)
	default:
		d.queue = append(d.queue, c)
		d.last = c
		switch {
		case !relaxed:
			d.press()
		case !d.pressed && !d.lingers:
			d.lingers = true
			time.AfterFunc(linger, d.lingered)
		}
	}
	return c
}

// SubmitRelaxed is Submit for a transaction whose durability no one waits for:
// it is executed, and becomes durable, with the next one that is submitted, or
// after linger, or at the next Sync.
func (d *DB) SubmitRelaxed(fn func(Tx) error) *Commit { return d.submit(fn, true) }

// linger is how long a relaxed transaction waits for others to share its
// commit. It leaves the disk and the processor to those that callers wait for.
const linger = time.Millisecond

// press has the queue committed, which must not be empty: a caller that submits to a
// pressed queue relies on the store's goroutine being awake. d.mu is held.
func (d *DB) press() {
	d.pressed = true
	d.work.Signal()
}

// lingered presses when no one else has.
func (d *DB) lingered() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lingers = false
	if len(d.queue) > 0 {
		d.press()
	}
}

// commitAll is the store's goroutine.
func (d *DB) commitAll() {
	defer close(d.ended)
	for {
		batch, failed := d.take()
		switch {
		case batch == nil:
			return
		case failed != nil:
			finishAll(batch, failed)
		default:
			d.commit(batch)
		}
	}
}

// take waits for work; nil once the store is closed and the queue empty.
func (d *DB) take() ([]*Commit, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.queue) == 0 || !d.pressed && !d.closed {
		if d.closed {
			return nil, nil
		}
		d.work.Wait()
	}
	d.gather()
	n := min(len(d.queue), maxBatch)
	d.shared = n
	batch := d.queue[:n:n]
	d.queue = d.queue[n:]
	if len(d.queue) == 0 {
		d.queue = nil // let go of the backing array
		d.pressed = false
	}
	return batch, d.failure()
}

// gather lets those that the last commit has woken submit what they do next
// before another commit begins: else it would begin with the first of them,
// and all others would have to wait for two. It yields the processor and waits
// for nothing; a lone writer is not kept at all. d.mu is held.
func (d *DB) gather() {
	if d.shared < 2 {
		return
	}
	for range d.shared {
		n := len(d.queue)
		d.mu.Unlock()
		runtime.Gosched()
		d.mu.Lock()
		if len(d.queue) == n || n >= d.shared {
			return
		}
	}
}

func finishAll(batch []*Commit, err error) {
	for _, c := range batch {
		c.undone = err != nil
		c.finish(err)
	}
}

// commit makes a batch durable. An error of a function is returned only when what
// it was based on is durable.
func (d *DB) commit(batch []*Commit) {
	after, good, refused, err := d.apply(batch)
	if err == nil && len(d.writes.record) > walHeader {
		err = d.write(after, good)
	}
	if err != nil {
		if kept, ok := d.failures.Due(); ok {
			d.cfg.Log.Error("commit failed", "transactions", len(batch), "err", err, "not_logged", kept)
		}
		finishAll(batch, err)
		return
	}
	finishAll(good, nil)
	for c, err := range refused {
		c.finish(err)
	}
	d.turn()
}

// apply executes the functions in order, each on what the ones before it have
// left, and returns what that is. What they have written is in d.writes.
func (d *DB) apply(batch []*Commit) (after *state, good []*Commit, refused map[*Commit]error, _ error) {
	w := &d.writes
	if cap(w.record) > recordKept {
		w.record = nil
	}
	w.record = append(w.record[:0], make([]byte, walHeader)...)
	after, good = d.now.Load().Copy(), batch[:0:0]
	for _, c := range batch {
		t := &stateTx{state: after, writes: w}
		mark := len(w.record)
		w.undo = w.undo[:0]
		if err := d.execute(c.fn, t); err != nil {
			if refused == nil {
				refused = map[*Commit]error{}
			}
			refused[c] = err
			t.rollback(mark)
			continue
		}
		good = append(good, c)
	}
	clear(w.undo[:cap(w.undo)]) // they hold on to values
	return after, good, refused, d.failure()
}

// recordKept is the largest record whose memory is used again.
const recordKept = 1 << 20

// execute runs one function; a panic is its error.
func (d *DB) execute(fn func(Tx) error, t *stateTx) (err error) {
	defer func() {
		if v := recover(); v != nil {
			d.cfg.Log.Error("transaction panicked", "err", v, "stack", string(debug.Stack()))
			err = bourse.Errorf(bourse.CodeInternal, "a transaction panicked: %v", v)
		}
	}()
	return fn(t)
}

// write makes durable what the functions of good have written, and visible.
func (d *DB) write(after *state, good []*Commit) error {
	d.commits++
	for _, c := range good {
		close(c.applied)
	}
	runtime.Gosched() // callers that answer from Applied do so while we write
	// A crash from here to the end of append leaves the log as it was before
	// the batch, or with all of it: nothing of it has been acknowledged.
	if err := d.cfg.Fault(FaultBefore, d.commits); err != nil {
		return d.fail(err)
	}
	switch err := d.wal.append(d.writes.record); {
	case errors.Is(err, errNotSynced):
		return d.fail(err)
	case err != nil:
		return d.unwritten(err)
	}
	if err := d.cfg.Fault(FaultAfter, d.commits); err != nil {
		return d.fail(err)
	}
	d.now.Store(after)
	return nil
}

func unavailable(err error) error {
	if _, ok := errors.AsType[*bourse.Error](err); ok {
		return err
	}
	return bourse.Errorf(bourse.CodeUnavailable, "the store cannot write: %w", err)
}
