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

// maxBatch is the maximum number of transactions in one commit. It limits how long the first
// transaction waits for the others.
const maxBatch = 256

var errClosed = bourse.Errorf(bourse.CodeUnavailable, "the store is closed")

// Commit is a submitted transaction.
type Commit struct {
	fn      func(Tx) error
	applied chan struct{}
	done    chan struct{}
	err     error // the transaction's error; set before done is closed
	undone  bool  // whether the whole batch failed, for example because it could not be written to disk; set together with err
}

// Applied returns a channel that is closed once the transaction's changes are visible to later transactions, or the
// transaction has failed. Changes that are visible may not be durable yet. If the transaction has failed, Wait returns
// immediately.
func (c *Commit) Applied() <-chan struct{} { return c.applied }

// Wait blocks until the transaction is durable or has failed. If ctx is done first, the outcome is unknown and the
// transaction continues.
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

// Submit queues fn for execution in a read-write transaction on the store's goroutine, after all
// transactions that were submitted earlier. It does not block, and fn must not block either. If
// fn returns an error, its changes are undone and Wait returns that error.
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
			d.requestCommit()
		case !d.due && !d.timerSet:
			d.timerSet = true
			time.AfterFunc(linger, d.lingerEnded)
		}
	}
	return c
}

// SubmitRelaxed is like Submit, but for transactions that nobody is waiting for. fn is executed and its changes become
// durable when the next transaction is passed to Submit, when linger has elapsed, or when Sync is called, whichever
// comes first.
func (d *DB) SubmitRelaxed(fn func(Tx) error) *Commit { return d.submit(fn, true) }

// linger is how long a relaxed transaction waits for other transactions to share its commit. In
// the meantime, the disk and the processor are available to transactions that callers wait for.
const linger = time.Millisecond

// requestCommit makes the store's goroutine commit the queue, which must not be empty. Relaxed transactions that are
// submitted before the commit starts become part of it, and do not start a timer. The caller holds d.mu.
func (d *DB) requestCommit() {
	d.due = true
	d.work.Signal()
}

// lingerEnded requests a commit unless an earlier commit has already emptied the queue.
func (d *DB) lingerEnded() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.timerSet = false
	if len(d.queue) > 0 {
		d.requestCommit()
	}
}

// commitAll commits batches until the store is closed. It runs on the store's goroutine.
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

// take waits for the next batch. It returns nil once the store is closed and the queue is empty.
func (d *DB) take() ([]*Commit, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.queue) == 0 || !d.due && !d.closed {
		if d.closed {
			return nil, nil
		}
		d.work.Wait()
	}
	d.awaitSubmitters()
	n := min(len(d.queue), maxBatch)
	d.lastBatch = n
	batch := d.queue[:n:n]
	d.queue = d.queue[n:]
	if len(d.queue) == 0 {
		d.queue = nil // release the backing array
		d.due = false
	}
	return batch, d.failure()
}

// awaitSubmitters waits briefly, so that the goroutines that waited for the last commit can submit their next
// transactions before another commit starts. Otherwise, the commit would contain only the first goroutine's
// transaction, and the other goroutines would have to wait for two commits. While it waits, awaitSubmitters only yields
// the processor. It does nothing if there is only one writer. The caller holds d.mu, which awaitSubmitters releases
// while it yields.
func (d *DB) awaitSubmitters() {
	if d.lastBatch < 2 {
		return
	}
	for range d.lastBatch {
		n := len(d.queue)
		d.mu.Unlock()
		runtime.Gosched()
		d.mu.Lock()
		if len(d.queue) == n || n >= d.lastBatch {
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

// commit makes a batch durable. If a transaction's function fails, commit reports the error only once the state that
// the function read is durable.
func (d *DB) commit(batch []*Commit) {
	after, succeeded, refused, err := d.apply(batch)
	if err == nil && len(d.writes.record) > walHeader {
		err = d.write(after, succeeded)
	}
	if err != nil {
		if kept, ok := d.failures.Due(); ok {
			d.cfg.Log.Error("commit failed", "transactions", len(batch), "err", err, "not_logged", kept)
		}
		finishAll(batch, err)
		return
	}
	finishAll(succeeded, nil)
	for c, err := range refused {
		c.finish(err)
	}
	d.checkpointIfFull()
}

// apply executes the batch's functions in order. Each function sees the changes of the previous ones. apply returns the
// resulting state, the transactions that succeeded, and the errors of those that failed. It collects the changes in
// d.writes.
func (d *DB) apply(batch []*Commit) (after *state, succeeded []*Commit, refused map[*Commit]error, _ error) {
	w := &d.writes
	if cap(w.record) > maxPooledRecord {
		w.record = nil
	}
	w.record = append(w.record[:0], make([]byte, walHeader)...)
	after, succeeded = d.now.Load().Copy(), batch[:0:0]
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
		succeeded = append(succeeded, c)
	}
	clear(w.undo[:cap(w.undo)]) // undo refers to old values, which can be garbage-collected now
	return after, succeeded, refused, d.failure()
}

// maxPooledRecord is the maximum capacity, in bytes, of a record buffer that the next commit
// reuses.
const maxPooledRecord = 1 << 20

// execute runs one function and converts a panic into an error.
func (d *DB) execute(fn func(Tx) error, t *stateTx) (err error) {
	defer func() {
		if v := recover(); v != nil {
			d.cfg.Log.Error("transaction panicked", "err", v, "stack", string(debug.Stack()))
			err = bourse.Errorf(bourse.CodeInternal, "transaction panicked: %v", v)
		}
	}()
	return fn(t)
}

// write makes the changes of the successful transactions durable, and then makes them visible to readers.
func (d *DB) write(after *state, succeeded []*Commit) error {
	d.commits++
	for _, c := range succeeded {
		close(c.applied)
	}
	runtime.Gosched() // callers that respond once Applied is closed can do so during the write
	// If the process crashes between here and the end of append, the log contains either the whole
	// batch or none of it. None of the batch's transactions has been acknowledged yet.
	switch err := d.cfg.Fault(FaultBefore, d.commits); {
	case isDiskFull(err):
		return d.countFault(err)
	case err != nil:
		return d.fail(err)
	}
	switch err := d.wal.append(d.writes.record); {
	case errors.Is(err, errNotSynced):
		return d.fail(err)
	case err != nil:
		return d.countFault(err)
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
	return bourse.Errorf(bourse.CodeUnavailable, "write to store: %w", err)
}
