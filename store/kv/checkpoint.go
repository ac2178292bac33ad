package kv

import (
	"runtime"
	"time"
)

// partChanges and partBytes bound one of the file's transactions of a
// checkpoint, so that no one waits long for the processor.
const (
	partChanges = 1000
	partBytes   = 1 << 20
)

// The time after which a checkpoint that failed is tried again; it doubles.
const (
	retryFirst = 100 * time.Millisecond
	retryMax   = 10 * time.Second
)

// turn starts a checkpoint when it is time for one and none is in progress. It
// is called by the store's goroutine, between two commits.
func (d *DB) turn() {
	now := d.shown()
	if now.moving != nil {
		d.growAhead()
		return
	}
	if !d.wal.full() {
		return
	}
	if err := d.wal.turn(); err != nil {
		d.cfg.Log.Error("the write-ahead log does not shrink", "err", err) // it is only larger than need be
	}
	d.beginCheckpoint(now)
}

// beginCheckpoint has all of a snapshot of which nothing is moving yet moved into
// the file. It is called by the store's goroutine, or before that is started.
func (d *DB) beginCheckpoint(now snapshot) {
	seq := d.wal.seq
	d.show(snapshot{latest: newChanges(), moving: now.latest, small: now.small})
	d.moves.Go(func() { d.checkpoint(now, seq) })
}

// checkpoint moves what is newest in a snapshot into the file, until that has
// succeeded, the store is closed, or it is unknown what the file
// holds. Up to seq all is in the file then.
func (d *DB) checkpoint(now snapshot, seq uint64) {
	all := d.unfiled(now)
	for wait := retryFirst; ; wait = min(2*wait, retryMax) {
		err := d.move(all, seq)
		if err == nil {
			d.filed = now.small
			d.layout.Lock()
			d.now.moving = nil
			d.layout.Unlock()
			d.short.Store(nil)
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

// unfiled returns what the file lacks of a snapshot of which nothing is moving.
func (d *DB) unfiled(now snapshot) *changes {
	all := now.latest.Copy()
	addDifference(all, d.filed, now.small)
	return all
}

// move writes changes into the file, in parts: as long as the write-ahead log
// has them, it does not matter how many of them a crash leaves there.
func (d *DB) move(all *changes, seq uint64) error {
	iter := all.Iter()
	defer iter.Release()
	for more := iter.First(); ; {
		before := d.visible()
		err := d.file.Update(func(t Tx) error {
			if err := d.cfg.Part(); err != nil {
				return err
			}
			for n, size := 0, 0; more && n < partChanges && size < partBytes; n++ {
				c := iter.Item()
				if err := c.make(t); err != nil {
					return err
				}
				size += len(c.key) + len(c.value)
				more = iter.Next()
			}
			if more {
				return nil
			}
			return t.Put(Meta, keyMoved, uint64Bytes(seq))
		})
		switch {
		case err != nil && (!full(err) || d.visible() != before):
			return d.fail(err)
		case err != nil:
			return d.unwritten(err)
		case !more:
			return nil
		}
		runtime.Gosched()
	}
}

// visible returns the number of the transaction that readers of the file see.
// When one that failed has moved it, its last page was written and not synced:
// the disk may hold either state, and going on could mix them. An error that
// does not say that there is no space fails the store even without that: a disk
// that has lost one write may have lost others that it acknowledged.
func (d *DB) visible() int {
	tx, err := d.file.db.Begin(false)
	if err != nil {
		return -1
	}
	defer tx.Rollback() //nolint:errcheck // of a read
	return tx.ID()
}
