package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/quiet"
)

// Config says where a store is.
type Config struct {
	Dir    string // required; made with mode 0700 when missing
	Schema *Schema
	Log    *slog.Logger // default: discards
	Turn   int64        // how much of a file of the log is used before the other is; default 4 MiB
	// Fault, for tests, is called before and after the n-th commit (counted
	// from 1). An error makes the store fail from there on as if the process
	// had been killed: before, nothing of the commit is on disk; after, all is
	// and no caller knows.
	Fault func(stage FaultStage, n uint64) error
	// Failed is called once when a write or sync error leaves unknown what the
	// disk holds, before anyone who waits for the store receives that. A daemon ends
	// there, at once, and its successor reads what the disk does hold. It may be
	// nil: from then on every outcome is unknown.
	Failed func(error)
	Part   func() error // for tests: called before each transaction of the file; an error is that of the disk
	media  *media       // for tests
}

// FaultStage says on which side of a commit Config.Fault is called.
type FaultStage int

// The stages. At FaultBefore the functions have run and Applied has been
// signaled.
const (
	FaultBefore FaultStage = iota + 1
	FaultAfter
)

// DB is an open store: a File, and the log in front of it. It is safe for
// concurrent use.
type DB struct {
	cfg     Config
	file    *File
	wal     *wal // used by the committer only, like the next two
	commits uint64
	writes  writes         // of the present commit
	closing chan struct{}  // closed by Close
	ended   chan struct{}  // closed when the committer has returned
	moves   sync.WaitGroup // of the checkpoint
	filed   *changes       // what the file holds in small buckets; used by the checkpoint
	// Of commits and of checkpoints that fail, one line a minute.
	failures, stuck quiet.Line
	failed          atomic.Pointer[bourse.Error] // why nothing is read or written any more
	short           atomic.Pointer[bourse.Error] // why the checkpoint has no space; see Short
	faults          atomic.Uint64                // commits and checkpoints that the disk has not taken

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

// Open opens the store in cfg.Dir, and makes it when there is none. It starts
// the store's one goroutine; Close ends it. CodeAlreadyExists: another daemon
// has the file open. CodeFailedPrecondition: it is of a newer release.
// CodeInternal: it is damaged. In these cases the file is as it was.
func Open(cfg Config) (*DB, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "open store: %w", err)
	}
	path := filepath.Join(cfg.Dir, FileName)
	file, err := openFile(path, cfg.Schema)
	if err != nil {
		return nil, err
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Fault == nil {
		cfg.Fault = func(FaultStage, uint64) error { return nil }
	}
	if cfg.Part == nil {
		cfg.Part = func() error { return nil }
	}
	d := &DB{cfg: cfg, file: file, closing: make(chan struct{}), ended: make(chan struct{})}
	d.work = sync.NewCond(&d.mu)
	if d.wal, err = openWAL(cfg.Dir, cfg.Turn); err == nil {
		if cfg.media != nil {
			d.wal.media = *cfg.media
		}
		err = syncDir(cfg.Dir)
	}
	if err == nil {
		err = d.recoverLog()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", path, err), d.closeFiles())
	}
	go d.commitAll()
	return d, nil
}

func (d *DB) closeFiles() error {
	err := d.file.Close()
	if d.wal != nil {
		err = errors.Join(err, d.wal.close())
	}
	return err
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
func (d *DB) Close() error {
	d.mu.Lock()
	again := d.closed
	if !again {
		close(d.closing)
	}
	d.closed = true
	d.work.Broadcast()
	d.mu.Unlock()
	<-d.ended
	d.moves.Wait()
	if again {
		return nil
	}
	if now := d.shown(); d.failure() == nil && now.moving == nil {
		if all := d.unfiled(now); all.Len() > 0 {
			if err := d.move(all, d.wal.seq); err != nil {
				d.cfg.Log.Error("checkpoint failed: the write-ahead log has the rest", "err", err)
			}
		}
	}
	return d.closeFiles()
}

// Update submits fn and waits until it is durable. When ctx ends first the
// outcome is unknown.
func (d *DB) Update(ctx context.Context, fn func(Tx) error) error {
	return d.Submit(fn).Wait(ctx)
}

// View executes fn on a snapshot of what is durable. It waits for no writer
// and keeps none waiting, but keeps the file from reusing space: fn should be
// short, and must not write.
func (d *DB) View(fn func(Tx) error) error {
	t, err := d.begin()
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return errClosed
	}
	if err != nil {
		return err
	}
	defer t.end()
	err = fn(t)
	if failed := d.failure(); failed != nil { // what fn has read may be nothing in place of something
		return failed
	}
	return err
}

// begin returns what is durable now, until end is called.
func (d *DB) begin() (*logTx, error) {
	if err := d.failure(); err != nil {
		return nil, err
	}
	d.layout.RLock()
	defer d.layout.RUnlock()
	file, err := d.file.begin(d.spoiled)
	if err != nil {
		return nil, err
	}
	return &logTx{snapshot: d.now, file: file}, nil
}

// spoiled ends the store when a value is not what was written, although the file was
// whole when it was opened: what it would be taken for, nothing, is worse.
func (d *DB) spoiled(err error) { _ = d.fail(err) }

// shown returns what is durable beside the file.
func (d *DB) shown() snapshot {
	d.layout.RLock()
	defer d.layout.RUnlock()
	return d.now
}

// show makes a snapshot the present one.
func (d *DB) show(now snapshot) {
	d.layout.Lock()
	defer d.layout.Unlock()
	d.now = now
}

// Sync waits until everything that was submitted before the call is durable or
// refused, so that a View after it sees it. When nothing is on its way it
// returns at once. CodeUnavailable: it could not be written. CodeTimeout: the
// store has failed, and the outcome is unknown.
func (d *DB) Sync(ctx context.Context) error {
	if err := d.failure(); err != nil {
		return err
	}
	d.mu.Lock()
	c := d.last
	if c == nil || c.finished() {
		d.mu.Unlock()
		return nil
	}
	if len(d.queue) > 0 { // else it is being committed
		d.press()
	}
	d.mu.Unlock()
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
