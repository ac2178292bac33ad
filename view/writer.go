package view

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
)

// Bounds of one commit: it is short, so that whoever waits for the next one
// does not wait for long.
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

// writer is what only the writer uses.
type writer struct {
	file    *file    // nil while there is none
	history []string // of the schema
	unlock  func() error
	hear    func(*Transaction, []byte)
	hasher  hasher
	commits uint64
	retry   <-chan time.Time // what others send is not written until then: the disk refuses; nil when it does not
}

// rest leaves the disk in peace for a while.
func (w *writer) rest() { w.retry = time.After(retryAfter) }

// Run is the writer: everything that changes the file happens in it. It
// returns nil when ctx ends. Call it once.
func (v *View) Run(ctx context.Context) error {
	defer v.end()
	tidy := time.NewTicker(tidyEvery)
	defer tidy.Stop()
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	if v.config.Path == "" {
		check.Stop() // memory does not vanish, nor fill up
	}
	v.SetPresence(v.config.Site, true, v.config.Now())
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-v.work:
		case <-v.writer.retry:
			v.writer.retry = nil
		case <-check.C:
			if err := v.checkFile(); err != nil {
				v.replace(err)
			}
		case <-tidy.C:
			v.SetPresence(v.config.Site, true, v.config.Now())
			if err := v.tidy(); err != nil {
				return err
			}
		}
		if err := v.writeAll(ctx); err != nil {
			return err
		}
	}
}

// writeAll writes all that there is to write.
func (v *View) writeAll(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := v.takeSuspicion(); err != nil {
			v.replace(err)
		}
		jobs := v.takeJobs()
		presences := v.takePresence()
		var items []*incoming
		if len(jobs) != 1 || !jobs[0].alone {
			items = v.takeItems()
		}
		if len(jobs)+len(presences)+len(items) == 0 {
			return nil
		}
		if err := v.step(jobs, presences, items); err != nil {
			return err
		}
		if v.writer.retry != nil && !v.hasJobs() {
			return nil
		}
	}
	return nil
}

// step writes one commit, or several when one of its parts is bad. An error
// ends Run.
func (v *View) step(jobs []*job, due map[bourse.WorkerID]presence, items []*incoming) error {
	err := v.transact(func(b *batch) error {
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
			if err := v.applyIn(b, in); err != nil {
				return err
			}
		}
		return nil
	}, func() { v.presenceWritten(due); v.settleItems(items) })
	if err == nil {
		answer(jobs, nil)
		return nil
	}
	if fateOf(err) == fateBadRow && len(jobs)+len(items) > 0 {
		return v.isolate(jobs, items)
	}
	return v.failed(err, jobs, items)
}

func (v *View) applyIn(b *batch, in *incoming) error {
	if err := v.config.Fault(FaultApply, v.writer.commits+1); err != nil {
		return err
	}
	return b.apply(in)
}

// failed does what the fate of an error demands. Transactions of others go
// back into the queue, jobs are refused.
func (v *View) failed(err error, jobs []*job, items []*incoming) error {
	switch fateOf(err) {
	case fateKilled:
		answer(jobs, err)
		return err
	case fateUnavailable:
		v.giveBack(items)
		v.setTrouble(err)
		v.writer.rest()
	case fateDamaged, fateBadRow:
		v.replace(err)
	}
	answer(jobs, err)
	return nil
}

// transact writes one commit: what fill does, and nothing when it fails.
// committed is called with the view's lock held, when all of it is in the file.
func (v *View) transact(fill func(*batch) error, committed func()) error {
	if v.writer.file == nil {
		return bourse.Errorf(bourse.CodeUnavailable, "there is no file: %w", errNoFile)
	}
	c := v.writer.file.conn
	defer v.pool.exclusive()()
	b := newBatch(c, v.tables, v.state, v.config.Now(), &v.writer.hasher, &v.notary)
	if err := run(c, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := recovered(func() error {
		if err := fill(b); err != nil {
			return err
		}
		return b.flush()
	})
	if err == nil {
		err = v.commit(b)
	}
	if err != nil {
		if !c.AutocommitEnabled() {
			_ = run(c, "ROLLBACK") // the cause is told
		}
		return err
	}
	v.publishState(b, committed)
	return nil
}

// commit makes the batch durable against the end of this process.
func (v *View) commit(b *batch) error {
	if !b.dirty() {
		return run(b.conn, "ROLLBACK")
	}
	v.writer.commits++
	if err := v.fault(FaultBefore); err != nil {
		return err
	}
	// Readers never stand in the way: the log file takes the commit.
	if err := run(b.conn, "COMMIT"); err != nil {
		return err
	}
	return v.fault(FaultAfter)
}

func (v *View) fault(stage FaultStage) error {
	err := v.config.Fault(stage, v.writer.commits)
	if err == nil || fateOf(err) != fateBadRow {
		return err
	}
	return fmt.Errorf("%w: %w", errKilled, err)
}

// publishState lets everybody know of a commit.
func (v *View) publishState(b *batch, committed func()) {
	v.mu.Lock()
	b.committed()
	for _, r := range b.recent {
		if r.frame == nil {
			v.ring.forget(r.Stream)
			v.intake.settle(r.Stream, v.state.heads[r.Stream].seq)
		} else {
			v.ring.push(r.Position, r.frame)
		}
	}
	if committed != nil {
		committed()
	}
	for s := range b.gaps {
		delete(v.intake.tails, s) // what follows is taken when it comes again
	}
	v.intake.finish()
	v.faults.writing = nil
	v.writer.retry = nil
	v.forged += uint64(b.forged)
	if b.lost {
		close(v.lost)
		v.lost = make(chan struct{})
	}
	v.wakeWatchers(b.touched)
	v.mu.Unlock()
	for _, p := range b.published {
		v.writer.hear(p.tx, p.encoded)
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
