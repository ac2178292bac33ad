package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/bourse-dev/bourse"
)

// FileName is the name of the store's file in its directory.
const FileName = "worker.db"

// DefaultKeep is how long what has ended is kept.
const DefaultKeep = time.Hour

// Config says where a store is.
type Config struct {
	Dir  string        // required; made with mode 0700 when missing
	Log  *slog.Logger  // default: discards
	Keep time.Duration // how long Prune keeps destroyed machines, orders and ended runs; default DefaultKeep
	// Fault, for tests, is called before and after the n-th commit (counted
	// from 1). An error makes the store fail from there on as if the process
	// had been killed: before, nothing of the commit is on disk; after, all is
	// and nobody was told.
	Fault func(stage FaultStage, n uint64) error
}

// FaultStage says on which side of a commit Config.Fault is called.
type FaultStage int

// The stages. At FaultBefore the functions have run and Applied has been
// signaled.
const (
	FaultBefore FaultStage = iota + 1
	FaultAfter
)

// Store is an open store. It is safe for concurrent use.
type Store struct {
	db    *bbolt.DB
	log   *slog.Logger
	keep  time.Duration
	fault func(FaultStage, uint64) error
	ended chan struct{} // closed when the committer has returned

	mu      sync.Mutex // never held over I/O
	work    *sync.Cond // of mu: queue has grown, or closed is set
	queue   []*Commit
	pressed bool    // the queue is to be committed now
	lingers bool    // it will be in a moment
	last    *Commit // submitted latest; nil before the first
	closed  bool
	failed  error  // why nothing is written any more
	shared  int    // how many transactions the last commit had
	commits uint64 // touched by the committer only
}

const (
	lockTimeout = time.Second // how long another daemon may take to let go of the file
	// The file is mapped once, at a size that it hardly ever outgrows: growing
	// the map makes writers wait for readers. It costs address space only.
	initialMap = 1 << 30
	// The file grows in steps of this size; each takes one more sync.
	growStep = 16 << 20
)

// Open opens the store in cfg.Dir, and makes it when there is none. It starts
// the store's one goroutine; Close ends it. CodeAlreadyExists: another daemon
// has the file open. CodeFailedPrecondition: it is of a newer release.
// CodeInternal: it is damaged. In these cases the file is as it was.
func Open(cfg Config) (*Store, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "open store: %w", err)
	}
	path := filepath.Join(cfg.Dir, FileName)
	db, err := openFile(path)
	if err != nil {
		return nil, err
	}
	if err := syncDir(cfg.Dir); err != nil {
		return nil, errors.Join(bourse.Errorf(bourse.CodeUnavailable, "open store %s: %w", path, err), db.Close())
	}
	s := &Store{db: db, log: cfg.Log, keep: cfg.Keep, fault: cfg.Fault, ended: make(chan struct{})}
	s.work = sync.NewCond(&s.mu)
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.keep <= 0 {
		s.keep = DefaultKeep
	}
	if s.fault == nil {
		s.fault = func(FaultStage, uint64) error { return nil }
	}
	go s.commitAll()
	return s, nil
}

// openFile opens, checks and migrates the file. A damaged one may make bbolt
// panic, or touch pages that are not there: both become an error.
func openFile(path string) (db *bbolt.DB, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = bourse.Errorf(bourse.CodeInternal, "store %s is damaged: %v", path, v)
			db = nil // its lock is let go when the process ends: closing would touch the pages again
		}
	}()
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType, InitialMmapSize: initialMap, NoStatistics: true,
	})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, bourse.Errorf(bourse.CodeAlreadyExists, "store %s is in use by another daemon", path)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		return nil, bourse.Errorf(bourse.CodeInternal, "store %s is damaged: %w", path, err)
	case err != nil:
		return nil, bourse.Errorf(bourse.CodeUnavailable, "open store %s: %w", path, err)
	}
	db.AllocSize = growStep
	if err := reserve(path, growStep); err != nil {
		return nil, errors.Join(bourse.Errorf(bourse.CodeUnavailable, "open store %s: %w", path, err), db.Close())
	}
	if err := migrate(db); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", path, err), db.Close())
	}
	return db, nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Close waits until everything submitted is durable, or has failed, and closes
// the file. What is submitted later fails with CodeUnavailable.
func (s *Store) Close() error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	s.work.Broadcast()
	s.mu.Unlock()
	<-s.ended
	if again {
		return nil
	}
	return s.db.Close()
}

// Update submits fn and waits until it is durable. When ctx ends first the
// outcome is unknown.
func (s *Store) Update(ctx context.Context, fn func(*Tx) error) error {
	return s.Submit(fn).Wait(ctx)
}

// View executes fn on a snapshot of what is durable. It waits for no writer
// and keeps none waiting, but keeps the file from reusing space: fn should be
// short, and must not write.
func (s *Store) View(fn func(*Tx) error) error {
	err := s.db.View(func(tx *bbolt.Tx) error { return fn(&Tx{tx: tx}) })
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return errClosed
	}
	return err
}

// Sync waits until everything that was submitted before the call is durable or
// refused, so that a View after it sees it. When nothing is on its way it
// returns at once. CodeUnavailable: it could not be written.
func (s *Store) Sync(ctx context.Context) error {
	s.mu.Lock()
	c := s.last
	if c == nil || c.over() {
		s.mu.Unlock()
		return nil
	}
	if len(s.queue) > 0 { // else it is being committed
		s.press()
	}
	s.mu.Unlock()
	select {
	case <-c.done:
		if c.undone {
			return c.err
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("sync the store: %w", ctx.Err())
	}
}
