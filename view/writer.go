package view

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// Limits on the number of other sites' transactions in one commit, and on their size in bytes. They keep commits short,
// so that callers do not wait long for the next commit.
const (
	maxBatch      = 1024
	maxBatchBytes = 4 << 20
)

// The writer's intervals.
const (
	retryAfter     = time.Second // delay after a failed write
	checkInterval  = time.Second // interval at which the writer checks that the file still exists
	expiryInterval = time.Minute
	touchInterval  = time.Hour // minimum time between updates of meta.touched_at
)

// writer contains the state of the goroutine that changes the file and View.state. No other
// goroutine changes them.
type writer struct {
	view      *View
	file      *schema.File // nil if the file could not be created
	unlock    func() error
	onPublish func(*wire.Transaction, []byte)
	hasher    wire.Hasher
	commits   uint64
	retry     <-chan time.Time // after a failed write, fires when other sites' transactions may be written again; otherwise nil
}

// backOff delays the next write of other sites' transactions.
func (w *writer) backOff() { w.retry = time.After(retryAfter) }

// Run writes all changes to the file until ctx is done, and then returns nil. Call it once.
func (v *View) Run(ctx context.Context) error {
	defer v.end()
	return v.writer.run(ctx)
}

func (w *writer) run(ctx context.Context) error {
	tidy := time.NewTicker(expiryInterval)
	defer tidy.Stop()
	check := time.NewTicker(checkInterval)
	defer check.Stop()
	v := w.view
	if v.config.Path == "" {
		check.Stop() // an in-memory view needs no check
	}
	v.SetPresence(v.config.Site, true, v.config.Now())
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-v.work:
		case <-w.retry:
			w.retry = nil
		case <-check.C:
			if err := w.checkFile(); err != nil {
				w.replace(err)
			}
		case <-tidy.C:
			v.SetPresence(v.config.Site, true, v.config.Now())
			if err := w.removeExpired(); err != nil {
				return err
			}
		}
		if err := w.writeAll(ctx); err != nil {
			return err
		}
	}
}

// writeAll writes all pending changes, in as many commits as necessary.
func (w *writer) writeAll(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := w.takeReadError(); err != nil {
			w.replace(err)
		}
		jobs := w.takeJobs()
		presences := w.takePresence()
		var items []*incoming
		if len(jobs) != 1 || !jobs[0].ownCommit {
			items = w.takeItems()
		}
		if len(jobs)+len(presences)+len(items) == 0 {
			return nil
		}
		if err := w.step(jobs, presences, items); err != nil {
			return err
		}
		if w.retry != nil && !w.hasJobs() {
			return nil
		}
	}
	return nil
}

// step writes the given changes in one commit, or in several if one of the changes fails. If step returns an error, Run
// stops and returns that error.
func (w *writer) step(jobs []*job, due map[bourse.WorkerID]presence, items []*incoming) error {
	err := w.transact(func(b *batch) error {
		for _, j := range jobs {
			if j.abandoned() {
				continue
			}
			if err := j.do(b); err != nil {
				return err
			}
		}
		if err := b.writePresence(due); err != nil {
			return err
		}
		for _, in := range items {
			if err := w.applyIn(b, in); err != nil {
				return err
			}
		}
		return nil
	}, func() { w.presenceWritten(due); w.settleItems(items) })
	if err == nil {
		answer(jobs, nil)
		return nil
	}
	if failureOf(err) == failBadRow && len(jobs)+len(items) > 0 {
		return w.isolate(jobs, items)
	}
	return w.failed(err, jobs, items)
}

func (w *writer) applyIn(b *batch, in *incoming) error {
	if err := w.view.config.Fault(FaultApply, w.commits+1); err != nil {
		return err
	}
	return b.apply(in)
}

// failed handles a failed commit according to the class of its error. It reports the error to the
// jobs' callers and, if the file may become writable again, requeues the other sites' transactions.
func (w *writer) failed(err error, jobs []*job, items []*incoming) error {
	switch failureOf(err) {
	case failKilled:
		answer(jobs, err)
		return err
	case failUnavailable:
		w.requeueItems(items)
		w.setWriteError(err)
		w.backOff()
	case failDamaged, failBadRow:
		w.replace(err)
	}
	answer(jobs, err)
	return nil
}

// transact commits the changes that fill adds to a batch, or nothing if fill fails. After the
// commit, it calls committed with the view's lock held.
func (w *writer) transact(fill func(*batch) error, committed func()) error {
	if w.file == nil {
		return bourse.Errorf(bourse.CodeUnavailable, "%w", errNoFile)
	}
	c := w.file.Conn
	defer w.view.pool.Exclusive()()
	b := newBatch(c, w.view.tables, w.view.state, w.view.config.Now(), &w.hasher, &w.view.verifier)
	if err := schema.Run(c, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := recovered(func() error {
		if err := fill(b); err != nil {
			return err
		}
		return b.flush()
	})
	if err == nil {
		err = w.commit(b)
	}
	if err != nil {
		if !c.AutocommitEnabled() {
			_ = schema.Run(c, "ROLLBACK") // the original error is returned instead
		}
		return err
	}
	w.publishState(b, committed)
	return nil
}

// commit commits the batch. The commit survives a crash of this process, but may not survive a host
// crash.
func (w *writer) commit(b *batch) error {
	if !b.dirty() {
		return schema.Run(b.conn, "ROLLBACK")
	}
	w.commits++
	if err := w.fault(FaultBefore); err != nil {
		return err
	}
	// Readers never block a commit, because a commit only appends to the write-ahead log.
	if err := schema.Run(b.conn, "COMMIT"); err != nil {
		return err
	}
	return w.fault(FaultAfter)
}

func (w *writer) fault(stage FaultStage) error {
	err := w.view.config.Fault(stage, w.commits)
	if err == nil || failureOf(err) != failBadRow {
		return err
	}
	return fmt.Errorf("%w: %w", errKilled, err)
}

// publishState completes a commit: it updates the in-memory state, notifies waiting callers and
// watchers, and passes this server's new transactions to onPublish.
func (w *writer) publishState(b *batch, committed func()) {
	w.view.mu.Lock()
	b.committed()
	for _, r := range b.recent {
		if r.frame == nil {
			w.view.ring.drop(r.Stream)
			w.view.intake.settle(r.Stream, w.view.state.heads[r.Stream].seq)
		} else {
			w.view.ring.push(r.Position, r.frame)
		}
	}
	if committed != nil {
		committed()
	}
	for s := range b.gaps {
		delete(w.view.intake.tails, s) // accept later transactions of the stream when they arrive again
	}
	w.view.intake.finish()
	w.view.faults.writing = nil
	w.retry = nil
	w.view.forged += uint64(b.forged)
	if b.lost {
		close(w.view.lost)
		w.view.lost = make(chan struct{})
	}
	w.view.wakeWatchers(b.touched)
	w.view.mu.Unlock()
	if b.wasRemoved {
		w.view.logRemoved()
	}
	for _, p := range b.published {
		w.onPublish(p.tx, p.encoded)
	}
}

// end makes all pending jobs fail and releases all callers that wait for the writer.
func (v *View) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ended {
		return
	}
	v.ended = true
	close(v.stopped)
	for _, j := range v.jobs {
		j.done <- errEnded()
	}
	v.jobs = nil
}

func answer(jobs []*job, err error) {
	if err != nil {
		err = errRefused(err)
	}
	for _, j := range jobs {
		j.done <- err
	}
}

var errNoFile = errors.New("the view's file has not been created yet")
