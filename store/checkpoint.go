package store

import (
	"runtime"
	"time"
)

// partChanges and partBytes bound one of the file's transactions of a
// checkpoint, so that nobody waits long for the processor.
const (
	partChanges = 1000
	partBytes   = 1 << 20
)

// keyMoved has the number of the last record of the write-ahead log that is
// in the file.
var keyMoved = []byte("moved")

// The time after which a checkpoint that failed is tried again; it doubles.
const (
	retryFirst = 100 * time.Millisecond
	retryMost  = 10 * time.Second
)

// turn starts a checkpoint when it is time for one and none is under way. It
// is called by the store's goroutine, between two commits.
func (s *Store) turn() {
	now := s.shown()
	if now.moving != nil {
		s.growAhead()
		return
	}
	if !s.wal.full() {
		return
	}
	if err := s.wal.turn(); err != nil {
		s.log.Error("the write-ahead log does not shrink", "err", err) // it is only larger than need be
	}
	s.beginCheckpoint(now)
}

// beginCheckpoint has all of a snapshot of which nothing is moving yet moved into
// the file. It is called by the store's goroutine, or before that is started.
func (s *Store) beginCheckpoint(now snapshot) {
	seq := s.wal.seq
	s.show(snapshot{latest: newChanges(), moving: now.latest, small: now.small})
	s.moves.Go(func() { s.checkpoint(now, seq) })
}

// checkpoint moves what is newest in a snapshot into the file, until that has
// succeeded, the store is closed, or nobody can tell any more what the file
// holds. Up to seq all is in the file then.
func (s *Store) checkpoint(now snapshot, seq uint64) {
	all := s.unfiled(now)
	for wait := retryFirst; ; wait = min(2*wait, retryMost) {
		err := s.move(all, seq)
		if err == nil {
			s.filed = now.small
			s.layout.Lock()
			s.now.moving = nil
			s.layout.Unlock()
			s.short.Store(nil)
			return
		}
		s.noteFull(err)
		if kept, ok := s.stuck.Due(); ok {
			s.log.Error("checkpoint failed", "err", err, "not_logged", kept)
		}
		if s.dead() != nil {
			return
		}
		select {
		case <-time.After(wait):
		case <-s.closing:
			return
		}
	}
}

// unfiled gives what the file lacks of a snapshot of which nothing is moving.
func (s *Store) unfiled(now snapshot) *changes {
	all := now.latest.Copy()
	addDifference(all, s.filed, now.small)
	return all
}

// move writes changes into the file, in parts: as long as the write-ahead log
// has them, it does not matter how many of them a crash leaves there.
func (s *Store) move(all *changes, seq uint64) error {
	iter := all.Iter()
	defer iter.Release()
	for more := iter.First(); ; {
		before := s.visible()
		err := updateFile(s.db, func(f *file) error {
			if err := s.part(); err != nil {
				return err
			}
			for n, size := 0, 0; more && n < partChanges && size < partBytes; n++ {
				c := iter.Item()
				if err := f.put(c.bucket, c.key, c.value); err != nil {
					return err
				}
				size += len(c.key) + len(c.value)
				more = iter.Next()
			}
			if more {
				return nil
			}
			return f.put(bucketMeta, keyMoved, uint64Bytes(seq))
		})
		switch {
		case err != nil && (!full(err) || s.visible() != before):
			return s.fail(err)
		case err != nil:
			return s.unwritten(err)
		case !more:
			return nil
		}
		runtime.Gosched()
	}
}

// visible gives the number of the transaction that readers of the file see.
// When one that failed has moved it, its last page was written and not synced:
// the disk may hold either state, and going on could mix them. An error that
// does not say that there is no room fails the store even without that: a disk
// that has lost one write may have lost others that it acknowledged.
func (s *Store) visible() int {
	tx, err := s.db.Begin(false)
	if err != nil {
		return -1
	}
	defer tx.Rollback() //nolint:errcheck // of a read
	return tx.ID()
}
