package store

import (
	"bytes"
	"strings"

	"go.etcd.io/bbolt"
)

// keySalt has the salt of the write-ahead log. A file that has none may have a
// log beside it that was written before version 7 of the schema.
var keySalt = []byte("salt")

// recoverLog makes what the file and the write-ahead log hold the present
// snapshot. What the file has not is moved there by a checkpoint later: a disk
// that is full keeps no one from reading.
func (s *Store) recoverLog() error {
	if err := s.saltLog(); err != nil {
		return err
	}
	moved, _, err := s.logKeys()
	if err != nil {
		return err
	}
	found, err := s.wal.scan(moved)
	if err != nil {
		return err
	}
	if len(found.damage) > 0 {
		return damaged(found.damage)
	}
	if err := s.readFile(); err != nil {
		return err
	}
	if err := s.wal.resume(moved, found.records); err != nil {
		return unavailable(err)
	}
	if len(found.records) == 0 {
		return nil
	}
	now := s.shown()
	now.small = now.small.Copy()
	for _, r := range found.records {
		if err := replay(r.body, &now); err != nil {
			return err
		}
	}
	s.beginCheckpoint(now)
	s.growAhead()
	return nil
}

// replay makes the changes of a record in a snapshot.
func replay(body []byte, now *snapshot) error {
	return readOps(body, func(c change) {
		switch {
		case !small(c.bucket):
			now.latest.Set(c)
		case c.value == nil:
			now.small.Delete(c)
		default:
			now.small.Set(c)
		}
	})
}

// logKeys returns the number of the last record that is in the file, and the
// log's salt, nil when it has none yet.
func (s *Store) logKeys() (moved uint64, key []byte, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		f := s.reading(tx)
		moved, key = uint64Of(f.get(bucketMeta, keyMoved)), bytes.Clone(f.get(bucketMeta, keySalt))
		return s.dead()
	})
	if err != nil {
		err = unavailable(err)
	}
	return moved, key, err
}

// saltLog makes the log one that has a salt. What an older release has left in
// it is moved into the file first, since its records have none.
func (s *Store) saltLog() error {
	moved, key, err := s.logKeys()
	if err != nil {
		return err
	}
	if len(key) == len(s.wal.salt) {
		s.wal.salt = salt(key)
		return nil
	}
	records, err := s.wal.afterUnsalted(moved)
	if err != nil {
		return err
	}
	all := newChanges()
	for _, r := range records {
		if err := readOps(r.body, func(c change) { all.Set(c) }); err != nil {
			return err
		}
	}
	if all.Len() > 0 {
		if err := s.move(all, s.wal.seq); err != nil {
			return err
		}
	}
	s.wal.salt = newSalt()
	err = updateFile(s.db, func(f *file) error { return f.put(bucketMeta, keySalt, s.wal.salt[:]) })
	if err != nil {
		return unavailable(err)
	}
	return nil
}

func joinTexts(texts []string) string { return strings.Join(texts, "; ") }
