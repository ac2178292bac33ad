package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
)

// maxBatch bounds how many transactions share one commit, so that the first
// does not wait for too many others.
const maxBatch = 256

var errClosed = bourse.Errorf(bourse.CodeUnavailable, "the store is closed")

// Commit is a submitted transaction.
type Commit struct {
	fn      func(*Tx) error
	applied chan struct{}
	done    chan struct{}
	err     error // of the transaction; set before done is closed
	undone  bool  // the disk did not take it, with all others of its batch; set like err
}

var _ fsm.Commit = (*Commit)(nil)

// Applied is closed when the function has run without an error and its effects
// are part of every later transaction, or when it has failed (then Wait does
// not block). It is not durable yet.
func (c *Commit) Applied() <-chan struct{} { return c.applied }

// Wait blocks until the transaction is durable or has failed. When ctx ends
// first the outcome is unknown and the transaction goes on.
func (c *Commit) Wait(ctx context.Context) error {
	if c.over() {
		return c.err
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return fmt.Errorf("wait for the store: %w", ctx.Err())
	}
}

// over tells whether Wait would not block.
func (c *Commit) over() bool {
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
// gives.
func (s *Store) Submit(fn func(*Tx) error) *Commit { return s.submit(fn, false) }

func (s *Store) submit(fn func(*Tx) error, relaxed bool) *Commit {
	c := &Commit{fn: fn, applied: make(chan struct{}), done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch failed := s.dead(); {
	case failed != nil:
		c.finish(failed)
	case s.closed:
		c.finish(errClosed)
	default:
		s.queue = append(s.queue, c)
		s.last = c
		switch {
		case !relaxed:
			s.press()
		case !s.pressed && !s.lingers:
			s.lingers = true
			time.AfterFunc(linger, s.lingered)
		}
	}
	return c
}

// SubmitRelaxed is Submit for a transaction whose durability nobody waits for:
// it is executed, and becomes durable, with the next one that is submitted, or
// after linger, or when somebody calls Sync.
func (s *Store) SubmitRelaxed(fn func(*Tx) error) *Commit { return s.submit(fn, true) }

// linger is how long a relaxed transaction waits for others to share its
// commit. It keeps the disk and the processor to those who are waited for.
const linger = time.Millisecond

// press has the queue committed, which must not be empty: who submits to a
// pressed queue relies on the store's goroutine being awake. s.mu is held.
func (s *Store) press() {
	s.pressed = true
	s.work.Signal()
}

// lingered presses when nobody else has.
func (s *Store) lingered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lingers = false
	if len(s.queue) > 0 {
		s.press()
	}
}

// commitAll is the store's goroutine.
func (s *Store) commitAll() {
	defer close(s.ended)
	for {
		batch, failed := s.take()
		switch {
		case batch == nil:
			return
		case failed != nil:
			finishAll(batch, failed)
		default:
			s.commit(batch)
		}
	}
}

// take waits for work; nil once the store is closed and the queue empty.
func (s *Store) take() ([]*Commit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 || !s.pressed && !s.closed {
		if s.closed {
			return nil, nil
		}
		s.work.Wait()
	}
	s.gather()
	n := min(len(s.queue), maxBatch)
	s.shared = n
	batch := s.queue[:n:n]
	s.queue = s.queue[n:]
	if len(s.queue) == 0 {
		s.queue = nil // let go of the backing array
		s.pressed = false
	}
	return batch, s.dead()
}

// gather lets those that the last commit has woken submit what they do next
// before another commit begins: else it would begin with the first of them,
// and all others would have to wait for two. It yields the processor and waits
// for nothing; a lone writer is not kept at all. s.mu is held.
func (s *Store) gather() {
	if s.shared < 2 {
		return
	}
	for range s.shared {
		n := len(s.queue)
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
		if len(s.queue) == n || n >= s.shared {
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

// commit makes a batch durable. An error of a function is told only when what
// it was based on is durable.
func (s *Store) commit(batch []*Commit) {
	after, good, refused, err := s.apply(batch)
	if err == nil && len(s.writes.record) > walHeader {
		err = s.write(after, good)
	}
	if err != nil {
		if kept, ok := s.failures.Due(); ok {
			s.log.Error("commit failed", "transactions", len(batch), "err", err, "not_logged", kept)
		}
		finishAll(batch, err)
		return
	}
	finishAll(good, nil)
	for c, err := range refused {
		c.finish(err)
	}
	s.turn()
}

// apply executes the functions in order, each on what the ones before it have
// left, and gives what that is. What they have written is in s.writes.
func (s *Store) apply(batch []*Commit) (after snapshot, good []*Commit, refused map[*Commit]error, _ error) {
	w := &s.writes
	if cap(w.record) > recordKept {
		w.record = nil
	}
	w.record = append(w.record[:0], make([]byte, walHeader)...)
	before, err := s.begin()
	if err != nil {
		return after, nil, nil, unavailable(err)
	}
	defer before.end()
	after, good = before.snapshot, batch[:0:0]
	after.latest, after.small = before.latest.Copy(), before.small.Copy()
	for _, c := range batch {
		t := &Tx{layers: layers{after, before.file}, writes: w}
		mark := len(w.record)
		w.undo = w.undo[:0]
		if err := s.execute(c.fn, t); err != nil {
			if refused == nil {
				refused = map[*Commit]error{}
			}
			refused[c] = err
			t.takeBack(mark)
			continue
		}
		good = append(good, c)
	}
	clear(w.undo[:cap(w.undo)]) // they hold on to values
	if err := s.dead(); err != nil {
		return after, nil, nil, err
	}
	return after, good, refused, nil
}

// recordKept is the largest record whose memory is used again.
const recordKept = 1 << 20

// execute runs one function; a panic is its error.
func (s *Store) execute(fn func(*Tx) error, t *Tx) (err error) {
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("transaction panicked", "err", v, "stack", string(debug.Stack()))
			err = bourse.Errorf(bourse.CodeInternal, "a transaction panicked: %v", v)
		}
	}()
	return fn(t)
}

// write makes durable what the functions of good have written, and visible.
func (s *Store) write(after snapshot, good []*Commit) error {
	s.commits++
	for _, c := range good {
		close(c.applied)
	}
	runtime.Gosched() // whoever answers from Applied does so while we write
	// A crash from here to the end of append leaves the log as it was before
	// the batch, or with all of it: nothing of it has been acknowledged.
	if err := s.fault(FaultBefore, s.commits); err != nil {
		return s.fail(err)
	}
	switch err := s.wal.append(s.writes.record); {
	case errors.Is(err, errNotSynced):
		return s.fail(err)
	case err != nil:
		return s.unwritten(err)
	}
	if err := s.fault(FaultAfter, s.commits); err != nil {
		return s.fail(err)
	}
	s.layout.Lock()
	s.now.latest, s.now.small = after.latest, after.small
	s.layout.Unlock()
	return nil
}

func unavailable(err error) error {
	if _, ok := errors.AsType[*bourse.Error](err); ok {
		return err
	}
	return bourse.Errorf(bourse.CodeUnavailable, "the store cannot write: %w", err)
}
