package store

import (
	"errors"

	"github.com/bourse-dev/bourse"
)

// Short returns CodeUnavailable when the disk has no room for a checkpoint, or
// none for the write-ahead log to grow until it ends; nil otherwise. What the log
// has a place for is then all that can be recorded. It is for the ends of what
// there is: callers refuse to begin anything new. When there is room Short ends
// by itself.
func (s *Store) Short() error {
	if err := s.short.Load(); err != nil {
		return err
	}
	return nil
}

// noteFull begins what Short reports, if err says that the disk is full. A
// checkpoint that succeeds ends it.
func (s *Store) noteFull(err error) {
	if full(err) {
		s.short.Store(&bourse.Error{Code: bourse.CodeUnavailable, Message: bourse.MessageOf(s.unwritten(err)), Err: err})
	}
}

// growAhead has the log grow before it is full, since a checkpoint has not ended.
// It is called by the store's goroutine, or before that is started.
func (s *Store) growAhead() {
	if err := s.wal.growAhead(); err != nil {
		s.noteFull(err)
		if s.shown().moving == nil { // it has ended meanwhile
			s.short.Store(nil)
		}
	}
}

// unwritten is the error of what the disk has not taken.
func (s *Store) unwritten(err error) error {
	if _, told := errors.AsType[*bourse.Error](err); !told && full(err) {
		return bourse.Errorf(bourse.CodeUnavailable, "the disk of %s is full: make room there, and it goes on by itself (%w)", s.dir, err)
	}
	return unavailable(err)
}
