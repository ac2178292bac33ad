package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/quiet"
)

// Config configures a DB.
type Config struct {
	Dir    string // required; created with mode 0700 if missing
	Schema *Schema
	Log    *slog.Logger // default: discards
	Turn   int64        // how many bytes of one log file are used, at least, before switching to the other; default 4 MiB
	// Fault, for tests, is called before and after the n-th commit (counted from 1). An error makes the store fail
	// from then on as if the process had been killed: before, nothing of the commit is on the disk; after, all of it
	// is, but no caller knows. Before, an error like ENOSPC is a full disk instead, which refuses only this commit.
	Fault func(stage FaultStage, n uint64) error
	// Failed, if set, is called once when a failed write or sync leaves the disk's contents unknown, before any
	// waiting caller receives the error. A daemon must exit there at once; its successor reads the actual contents.
	// From then on every outcome is unknown.
	Failed func(error)
	Step   func() error // for tests: called three times for each snapshot, see writeSnapshot; an error counts as the disk's
	media  *media       // for tests
}

// FaultStage is the moment of a commit at which Config.Fault is called.
type FaultStage int

// The stages. At FaultBefore the functions have run and Applied has been signaled.
const (
	FaultBefore FaultStage = iota + 1
	FaultAfter
)

// DB is an open store. It is safe for concurrent use.
type DB struct {
	cfg           Config
	lock          *os.File              // of the directory
	now           atomic.Pointer[state] // the durable state
	wal           *wal                  // only for the committer, like the next two
	commits       uint64
	writes        writes         // of the current commit
	closing       chan struct{}  // closed by Close
	ended         chan struct{}  // closed when the committer has returned
	checkpoint    sync.WaitGroup // in progress
	checkpointing atomic.Bool    // a checkpoint is in progress
	size          atomic.Int64   // of the snapshot
	// One log line a minute for failed commits and for failed checkpoints.
	failures, stuck quiet.Line
	failed          atomic.Pointer[bourse.Error] // why the store has failed; nil if it has not
	short           atomic.Pointer[bourse.Error] // why the checkpoint lacks space; see Short
	faults          atomic.Uint64                // commits and checkpoints that the disk refused

	queued
}

// queued holds the submitted transactions.
type queued struct {
	mu      sync.Mutex // never held during I/O
	work    *sync.Cond // of mu: queue has grown, or closed is set
	queue   []*Commit
	pressed bool    // the queue has to be committed now
	lingers bool    // a timer will set pressed
	last    *Commit // the last submitted one; nil before the first
	closed  bool
	shared  int // the number of transactions in the last commit
}

// Open opens the store in cfg.Dir, creating it if it does not exist. It starts one goroutine, which Close stops.
// Errors: CodeAlreadyExists if another daemon has the store open, CodeFailedPrecondition if a newer release wrote it,
// CodeInternal if it is damaged. In these cases the files are unchanged.
func Open(cfg Config) (*DB, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "open store: %w", err)
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Fault == nil {
		cfg.Fault = func(FaultStage, uint64) error { return nil }
	}
	if cfg.Step == nil {
		cfg.Step = func() error { return nil }
	}
	d := &DB{cfg: cfg, lock: lock, closing: make(chan struct{}), ended: make(chan struct{})}
	d.work = sync.NewCond(&d.mu)
	if err := d.recover(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", cfg.Dir, err), d.closeFiles())
	}
	go d.commitAll()
	return d, nil
}

// recover loads the current state from the snapshot and the log, creating both if they do not exist.
func (d *DB) recover() error {
	kept, err := d.readSnapshot()
	if err != nil {
		return err
	}
	if d.wal, err = openWAL(d.cfg.Dir, d.cfg.Turn); err != nil {
		return err
	}
	d.wal.salt = kept.salt
	if d.cfg.media != nil {
		d.wal.media = *d.cfg.media
	}
	if err := syncDir(d.cfg.Dir); err != nil {
		return unavailable(err)
	}
	found, err := d.wal.scan(kept.seq)
	if err != nil {
		return err
	}
	if len(found.damage) > 0 {
		return damaged(found.damage)
	}
	for _, r := range found.records {
		if err := readOps(r.body, d.cfg.Schema.Buckets, func(c change) { c.clone().applyTo(kept.state) }); err != nil {
			return err
		}
	}
	d.now.Store(kept.state)
	if err := d.wal.resume(kept.seq, found.records); err != nil {
		return unavailable(err)
	}
	if len(found.records) > 0 {
		d.beginCheckpoint()
		d.growAhead()
	}
	return nil
}

// readSnapshot reads the snapshot, creating an empty one for a new store.
func (d *DB) readSnapshot() (contents, error) {
	b, err := os.ReadFile(filepath.Join(d.cfg.Dir, FileName))
	if errors.Is(err, fs.ErrNotExist) {
		h := head{version: d.cfg.Schema.Version, salt: newSalt()}
		if _, err := writeSnapshot(d.cfg.Dir, h, newState(), func() error { return nil }); err != nil {
			return contents{}, unavailable(err)
		}
		return contents{head: h, state: newState()}, nil
	}
	if err != nil {
		return contents{}, bourse.Errorf(bourse.CodeUnavailable, "open store: %w", err)
	}
	d.size.Store(int64(len(b)))
	c := readSnapshot(b, d.cfg.Schema)
	switch {
	case !c.nothing && c.version != d.cfg.Schema.Version:
		return c, bourse.Errorf(bourse.CodeFailedPrecondition, "the store has version %d, this program needs %d: start the release that wrote it", c.version, d.cfg.Schema.Version)
	case len(c.damage) > 0:
		return c, damaged(c.damage)
	}
	return c, nil
}

func (d *DB) closeFiles() error {
	err := d.lock.Close()
	if d.wal != nil {
		err = errors.Join(err, d.wal.close())
	}
	return err
}

// Close waits until everything submitted is durable or has failed, and writes a snapshot. Later submissions fail with
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
	d.checkpoint.Wait()
	if again {
		return nil
	}
	if d.failure() == nil && !d.checkpointing.Load() && d.wal.end > 0 {
		if _, err := d.save(d.now.Load(), d.wal.seq); err != nil {
			d.cfg.Log.Error("write snapshot failed; the write-ahead log has the changes", "err", err)
		}
	}
	return d.closeFiles()
}

// Update submits fn and waits until it is durable. If ctx ends first, the outcome is unknown.
func (d *DB) Update(ctx context.Context, fn func(Tx) error) error {
	return d.Submit(fn).Wait(ctx)
}

// View executes fn on the durable state. It neither waits for writers nor blocks them. fn must not write.
func (d *DB) View(fn func(Tx) error) error {
	if err := d.failure(); err != nil {
		return err
	}
	select {
	case <-d.ended:
		return errClosed
	default:
		return fn(&stateTx{state: d.now.Load()})
	}
}

// Sync waits until everything that was submitted before the call is durable or refused, so that a later View sees it.
// It returns at once if nothing is in progress. Errors: CodeUnavailable if the transactions could not be written,
// CodeTimeout if the store has failed and the outcome is unknown.
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
	if len(d.queue) > 0 { // otherwise it is being committed
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
