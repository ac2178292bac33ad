package kv

import (
	"time"
)

// Bounds of the delay before a failed checkpoint is retried. The delay doubles after each failure.
const (
	minRetryDelay = 100 * time.Millisecond
	maxRetryDelay = 10 * time.Second
)

// checkpointIfFull starts a checkpoint if the current log file is full and no checkpoint is in
// progress. It is called by the store's goroutine, between two commits.
func (d *DB) checkpointIfFull() {
	if d.checkpointing.Load() {
		d.growAhead()
		return
	}
	if !d.wal.full(d.size.Load()) {
		return
	}
	if err := d.wal.switchFile(); err != nil {
		d.cfg.Log.Error("shrink write-ahead log failed", "err", err) // the log file is merely larger than necessary
	}
	d.beginCheckpoint()
}

// beginCheckpoint starts writing a snapshot of the current state in the background. It is called by
// the store's goroutine, or by Open before that goroutine starts.
func (d *DB) beginCheckpoint() {
	now, seq := d.now.Load(), d.wal.seq
	d.checkpointing.Store(true)
	d.checkpoint.Go(func() { d.saveUntilDone(now, seq) })
}

// saveUntilDone tries to write a snapshot until it succeeds, the store is closed, or the store has
// failed.
func (d *DB) saveUntilDone(now *state, seq uint64) {
	for wait := minRetryDelay; ; wait = min(2*wait, maxRetryDelay) {
		size, err := d.save(now, seq)
		if err == nil {
			d.size.Store(size)
			d.checkpointing.Store(false)
			d.spaceErr.Store(nil)
			return
		}
		d.noteFull(err)
		if kept, ok := d.stuck.Due(); ok {
			d.cfg.Log.Error("checkpoint failed", "err", err, "not_logged", kept)
		}
		if d.failure() != nil {
			return
		}
		select {
		case <-time.After(wait):
		case <-d.closing:
			return
		}
	}
}

// save writes a snapshot of a state that includes the log's records up to seq. Any error other than
// a full disk makes the store fail permanently, because a disk that has lost one write may also
// have lost writes that it acknowledged.
func (d *DB) save(now *state, seq uint64) (size int64, err error) {
	size, err = writeSnapshot(d.cfg.Dir, head{d.cfg.Schema.Version, d.wal.salt, seq}, now, d.cfg.Step)
	switch {
	case err == nil:
		return size, nil
	case isDiskFull(err):
		return 0, d.countFault(err)
	}
	return 0, d.fail(err)
}
