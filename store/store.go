package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/quiet"
)

// FileName is the name of the store's file in its directory.
const FileName = "worker.db"

// DefaultKeep is how long what has ended is kept.
const DefaultKeep = time.Hour

// Config says where a store is.
type Config struct {
	Dir  string        // required; made with mode 0700 when missing
	Log  *slog.Logger  // default: discards
	most int           // how many destroyed machines Prune keeps; default mostGone
	Keep time.Duration // how long Prune keeps destroyed machines, orders and ended runs; default DefaultKeep
	// Fault, for tests, is called before and after the n-th commit (counted
	// from 1). An error makes the store fail from there on as if the process
	// had been killed: before, nothing of the commit is on disk; after, all is
	// and nobody was told.
	Fault func(stage FaultStage, n uint64) error
	// Failed is called once when a write or sync error leaves unknown what the
	// disk holds, before anyone who waits for the store hears of it. A daemon ends
	// there, at once, and its successor reads what the disk does hold. It may be
	// nil: from then on every outcome is unknown.
	Failed func(error)
	part   func() error // for tests: called before each part of a checkpoint; an error is that of the disk
	media  *media       // for tests
	turn   int64        // for tests: how much of a write-ahead log's file is used before the other takes over; default walSize
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
	dir     string
	db      *bbolt.DB
	wal     *wal // used by the committer only, like the next two
	commits uint64
	writes  writes // of the present commit
	log     *slog.Logger
	keep    time.Duration
	most    int
	fault   func(FaultStage, uint64) error
	part    func() error
	closing chan struct{}  // closed by Close
	ended   chan struct{}  // closed when the committer has returned
	moves   sync.WaitGroup // of the checkpoint
	filed   *changes       // what the file holds in small buckets; used by the checkpoint
	onFail  func(error)
	// Of commits and of checkpoints that fail, one line a minute.
	failures, stuck quiet.Line
	failed          atomic.Pointer[bourse.Error] // why nothing is read or written any more
	short           atomic.Pointer[bourse.Error] // why the checkpoint has no room; see Short

	queued
	contents
}

// queued is what was submitted.
type queued struct {
	mu      sync.Mutex // never held over I/O
	work    *sync.Cond // of mu: queue has grown, or closed is set
	queue   []*Commit
	pressed bool    // the queue is to be committed now
	lingers bool    // it will be in a moment
	last    *Commit // submitted latest; nil before the first
	closed  bool
	shared  int // how many transactions the last commit had
}

// contents is what is durable.
type contents struct {
	// layout is held, for reading, while the file and now are looked at as one:
	// a checkpoint that has ended takes away what the file had not before.
	layout sync.RWMutex
	now    snapshot
}

const (
	lockTimeout = time.Second // how long another daemon may take to let go of the file
	// The file is mapped once, at a size that it hardly ever outgrows: growing
	// the map makes writers wait for readers. It costs address space only.
	initialMap = 1 << 30
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
	s := &Store{
		dir: cfg.Dir, db: db, log: cfg.Log, keep: cfg.Keep, most: cmp.Or(cfg.most, mostGone), fault: cfg.Fault, part: cfg.part, onFail: cfg.Failed, closing: make(chan struct{}), ended: make(chan struct{}),
	}
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
	if s.part == nil {
		s.part = func() error { return nil }
	}
	if s.wal, err = openWAL(cfg.Dir, cfg.turn); err == nil {
		if cfg.media != nil {
			s.wal.media = *cfg.media
		}
		err = syncDir(cfg.Dir)
	}
	if err == nil {
		err = s.recoverLog()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", path, err), s.closeFiles())
	}
	go s.commitAll()
	return s, nil
}

func (s *Store) closeFiles() error {
	err := s.db.Close()
	if s.wal != nil {
		err = errors.Join(err, s.wal.close())
	}
	return err
}

// openFile opens, checks and migrates the file. It is read as a whole before bbolt
// sees it, which would believe what it maps. What is wrong beyond that may make
// bbolt panic, or touch pages that are not there: both become an error.
func openFile(path string) (db *bbolt.DB, err error) {
	f, err := lockFile(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if err := checkFile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = bourse.Errorf(bourse.CodeInternal, "store %s is damaged: %v", path, v)
			db = nil // its lock is released when the process ends: closing would touch the pages again
		}
	}()
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType, InitialMmapSize: initialMap, NoStatistics: true,
		OpenFile: func(string, int, os.FileMode) (*os.File, error) { return f, nil },
	})
	switch {
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		return nil, bourse.Errorf(bourse.CodeInternal, "store %s is damaged: %w", path, err)
	case err != nil:
		return nil, bourse.Errorf(bourse.CodeUnavailable, "open store %s: %w", path, err)
	}
	if err := migrate(db); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", path, err), db.Close())
	}
	return db, nil
}

// checkFile reports an error unless every page and value of the file is what was
// written.
func checkFile(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "open store: %w", err)
	}
	if e := examine(f, info.Size(), nil); len(e.damage) > 0 {
		return damaged(e.damage)
	}
	return nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Close waits until everything submitted is durable, or has failed, moves it
// into the file and closes that. What is submitted later fails with
// CodeUnavailable.
func (s *Store) Close() error {
	s.mu.Lock()
	again := s.closed
	if !again {
		close(s.closing)
	}
	s.closed = true
	s.work.Broadcast()
	s.mu.Unlock()
	<-s.ended
	s.moves.Wait()
	if again {
		return nil
	}
	if now := s.shown(); s.dead() == nil && now.moving == nil {
		if all := s.unfiled(now); all.Len() > 0 {
			if err := s.move(all, s.wal.seq); err != nil {
				s.log.Error("checkpoint failed: the write-ahead log has the rest", "err", err)
			}
		}
	}
	return s.closeFiles()
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
	l, err := s.begin()
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return errClosed
	}
	if err != nil {
		return err
	}
	defer l.end()
	err = fn(&Tx{layers: l})
	if failed := s.dead(); failed != nil { // what fn has read may be nothing in place of something
		return failed
	}
	return err
}

// begin gives what is durable now, until end is called.
func (s *Store) begin() (layers, error) {
	if err := s.dead(); err != nil {
		return layers{}, err
	}
	s.layout.RLock()
	defer s.layout.RUnlock()
	tx, err := s.db.Begin(false)
	return layers{s.now, s.reading(tx)}, err
}

// reading is a transaction that reads the file. A value that is not what was
// written, although the file was whole when it was opened, ends the store: what
// it would be taken for, nothing, is worse.
func (s *Store) reading(tx *bbolt.Tx) *file {
	return &file{tx: tx, spoiled: func(err error) { _ = s.fail(err) }}
}

// readFile makes what the file holds the present snapshot.
func (s *Store) readFile() error {
	err := s.db.View(func(tx *bbolt.Tx) error {
		all := readSmall(s.reading(tx))
		s.filed = all
		s.show(snapshot{latest: newChanges(), small: all})
		return nil
	})
	if err != nil {
		return unavailable(err)
	}
	return s.dead()
}

// shown gives what is durable beside the file.
func (s *Store) shown() snapshot {
	s.layout.RLock()
	defer s.layout.RUnlock()
	return s.now
}

// show makes a snapshot the present one.
func (s *Store) show(now snapshot) {
	s.layout.Lock()
	defer s.layout.Unlock()
	s.now = now
}

// Sync waits until everything that was submitted before the call is durable or
// refused, so that a View after it sees it. When nothing is on its way it
// returns at once. CodeUnavailable: it could not be written. CodeTimeout: the
// store has failed, and nobody knows.
func (s *Store) Sync(ctx context.Context) error {
	if err := s.dead(); err != nil {
		return err
	}
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
