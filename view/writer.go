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

// Bounds of one commit: it is short, so that a caller that waits for the next
// one does not wait for long.
const (
	maxBatch      = 1024
	maxBatchBytes = 4 << 20
)

// Times of the writer.
const (
	retryAfter  = time.Second // a write that the disk has refused
	checkEvery  = time.Second // whether the file is still there
	tidyEvery   = time.Minute
	touchBefore = time.Hour // how old meta.touched_at may be
)

// writer is the goroutine that alone changes the file and View.state.
type writer struct {
	v         *View
	file      *schema.File // nil while there is none
	unlock    func() error
	onPublish func(*wire.Transaction, []byte)
	hasher    wire.Hasher
	commits   uint64
	retry     <-chan time.Time // what others send is not written until then: the disk refuses; nil when it does not
}

// rest leaves the disk in peace for a while.
func (w *writer) rest() { w.retry = time.After(retryAfter) }

// Run is the writer: everything that changes the file happens in it. It
// returns nil when ctx ends. Call it once.
func (v *View) Run(ctx context.Context) error {
	defer v.end()
	return v.writer.run(ctx)
}

func (w *writer) run(ctx context.Context) error {
	tidy := time.NewTicker(tidyEvery)
	defer tidy.Stop()
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	v := w.v
	if v.config.Path == "" {
		check.Stop() // memory does not vanish, nor fill up
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
			if err := w.tidy(); err != nil {
				return err
			}
		}
		if err := w.writeAll(ctx); err != nil {
			return err
		}
	}
}

// writeAll writes all that there is to write.
func (w *writer) writeAll(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := w.takeSuspicion(); err != nil {
			w.replace(err)
		}
		jobs := w.takeJobs()
		presences := w.takePresence()
		var items []*incoming
		if len(jobs) != 1 || !jobs[0].alone {
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

// step writes one commit, or several when one of its parts is bad. An error
// ends Run.
func (w *writer) step(jobs []*job, due map[bourse.WorkerID]presence, items []*incoming) error {
	err := w.transact(func(b *batch) error {
		for _, j := range jobs {
			if j.given() {
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
	if fateOf(err) == fateBadRow && len(jobs)+len(items) > 0 {
		return w.isolate(jobs, items)
	}
	return w.failed(err, jobs, items)
}

func (w *writer) applyIn(b *batch, in *incoming) error {
	if err := w.v.config.Fault(FaultApply, w.commits+1); err != nil {
		return err
	}
	return b.apply(in)
}

// failed does what the fate of an error demands. Transactions of others go
// back into the queue, jobs are refused.
func (w *writer) failed(err error, jobs []*job, items []*incoming) error {
	switch fateOf(err) {
	case fateKilled:
		answer(jobs, err)
		return err
	case fateUnavailable:
		w.giveBack(items)
		w.setTrouble(err)
		w.rest()
	case fateDamaged, fateBadRow:
		w.replace(err)
	}
	answer(jobs, err)
	return nil
}

// transact writes one commit: what fill does, and nothing when it fails.
// committed is called with the view's lock held, when all of it is in the file.
func (w *writer) transact(fill func(*batch) error, committed func()) error {
	if w.file == nil {
		return bourse.Errorf(bourse.CodeUnavailable, "there is no file: %w", errNoFile)
	}
	c := w.file.Conn
	defer w.v.pool.Exclusive()()
	b := newBatch(c, w.v.tables, w.v.state, w.v.config.Now(), &w.hasher, &w.v.verifier)
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
			_ = schema.Run(c, "ROLLBACK") // the cause is returned
		}
		return err
	}
	w.publishState(b, committed)
	return nil
}

// commit makes the batch durable against the end of this process.
func (w *writer) commit(b *batch) error {
	if !b.dirty() {
		return schema.Run(b.conn, "ROLLBACK")
	}
	w.commits++
	if err := w.fault(FaultBefore); err != nil {
		return err
	}
	// Readers never block it: the log file takes the commit.
	if err := schema.Run(b.conn, "COMMIT"); err != nil {
		return err
	}
	return w.fault(FaultAfter)
}

func (w *writer) fault(stage FaultStage) error {
	err := w.v.config.Fault(stage, w.commits)
	if err == nil || fateOf(err) != fateBadRow {
		return err
	}
	return fmt.Errorf("%w: %w", errKilled, err)
}

// publishState lets everybody know of a commit.
func (w *writer) publishState(b *batch, committed func()) {
	w.v.mu.Lock()
	b.committed()
	for _, r := range b.recent {
		if r.frame == nil {
			w.v.ring.forget(r.Stream)
			w.v.intake.settle(r.Stream, w.v.state.heads[r.Stream].seq)
		} else {
			w.v.ring.push(r.Position, r.frame)
		}
	}
	if committed != nil {
		committed()
	}
	for s := range b.gaps {
		delete(w.v.intake.tails, s) // what follows is taken when it comes again
	}
	w.v.intake.finish()
	w.v.faults.writing = nil
	w.retry = nil
	w.v.forged += uint64(b.forged)
	if b.lost {
		close(w.v.lost)
		w.v.lost = make(chan struct{})
	}
	w.v.wakeWatchers(b.touched)
	w.v.mu.Unlock()
	if b.wasForgotten {
		w.v.logForgotten()
	}
	for _, p := range b.published {
		w.onPublish(p.tx, p.encoded)
	}
}

// end releases all who wait for the writer.
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

var errNoFile = errors.New("it is made as soon as the disk allows")
