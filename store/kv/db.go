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
	Dir         string // required; created with mode 0700 if missing
	Schema      *Schema
	Log         *slog.Logger // default: discards all records
	LogFileSize int64        // size in bytes at which the store switches from one log file to the other; default 4 MiB
	// Fault is for tests. It is called before and after the n-th commit, counted from 1. If it
	// returns an error, the store fails permanently, as if the process had been killed. An error
	// before the commit means that the disk contains none of the commit's changes. An error after
	// the commit means that the disk contains all of them, but that no caller has been notified. As
	// an exception, if Fault reports a full disk (ENOSPC or similar) before the commit, only that
	// commit fails.
	Fault func(stage FaultStage, n uint64) error
	// Failed, if set, is called once if a write or sync has failed and the disk's contents are therefore unknown. No
	// waiting caller receives the error before Failed has returned. Failed must terminate the daemon immediately,
	// because from then on every outcome is unknown. The next daemon reads the actual contents of the disk.
	Failed  func(error)
	Step    func() error // for tests: called three times per snapshot, see writeSnapshot; an error that it returns counts as a disk error
	diskOps *diskOps     // for tests: replaces the real disk
}

// FaultStage is a stage of a commit at which Config.Fault is called.
type FaultStage int

// Stages of a commit. At FaultBefore, the transactions' functions have returned, and the channels
// returned by Applied are closed.
const (
	FaultBefore FaultStage = iota + 1
	FaultAfter
)

// DB is an open store. It is safe for concurrent use.
type DB struct {
	cfg           Config
	lock          *os.File              // lock on the directory
	now           atomic.Pointer[state] // the durable state
	wal           *wal                  // used only by the store's goroutine, as are commits and writes
	commits       uint64
	writes        writes         // changes made by the current commit
	closing       chan struct{}  // closed by Close
	ended         chan struct{}  // closed when the store's goroutine has returned
	checkpoint    sync.WaitGroup // used to wait for the checkpoint in progress
	checkpointing atomic.Bool    // whether a checkpoint is in progress
	size          atomic.Int64   // size of the snapshot in bytes
	// failures and stuck limit the store's messages about failed commits and failed checkpoints, respectively, to one
	// line per minute each.
	failures, stuck quiet.Line
	failed          atomic.Pointer[bourse.Error] // reason why the store has failed; nil if it has not failed
	spaceErr        atomic.Pointer[bourse.Error] // returned by SpaceError; nil if the disk has enough space
	faults          atomic.Uint64                // number of commits and checkpoints that could not be written to disk

	commitQueue
}

// commitQueue contains the submitted transactions.
type commitQueue struct {
	mu        sync.Mutex // never held during I/O
	work      *sync.Cond // signaled when due or closed is set; uses mu
	queue     []*Commit
	due       bool    // whether the queue has to be committed now
	timerSet  bool    // whether a timer is running that will set due
	last      *Commit // the last submitted transaction, or nil if there is none
	closed    bool
	lastBatch int // number of transactions in the last commit
}

// Open opens the store in cfg.Dir, creating it if it does not exist. It starts one goroutine, which
// Close stops. Errors: CodeAlreadyExists if another daemon has the store open,
// CodeFailedPrecondition if the store's schema has another version, CodeInternal if the store is
// damaged. In all these cases, Open does not change the files.
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
	if d.wal, err = openWAL(d.cfg.Dir, d.cfg.LogFileSize); err != nil {
		return err
	}
	d.wal.salt = kept.salt
	if d.cfg.diskOps != nil {
		d.wal.media = *d.cfg.diskOps
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
	case !c.unreadable && c.version != d.cfg.Schema.Version:
		return c, bourse.Errorf(bourse.CodeFailedPrecondition, "the store has version %d, but this program supports only version %d: start the release that wrote it", c.version, d.cfg.Schema.Version)
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

// Close waits until all submitted transactions are durable or have failed, and then writes a
// snapshot. Later submissions fail with CodeUnavailable.
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
			d.cfg.Log.Error("write snapshot failed; the write-ahead log contains the changes", "err", err)
		}
	}
	return d.closeFiles()
}

// Update submits fn and waits until its changes are durable. If ctx is done first, the outcome is
// unknown.
func (d *DB) Update(ctx context.Context, fn func(Tx) error) error {
	return d.Submit(fn).Wait(ctx)
}

// View executes fn on the durable state. View neither waits for writers nor blocks them. fn must
// not write.
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

// Sync waits until each transaction that was submitted before the call either is durable or has
// failed. A later View then sees the durable ones. Sync returns immediately if nothing is in
// progress. Errors: CodeUnavailable if the transactions could not be written, CodeTimeout if the
// store has failed and the outcome is unknown.
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
	if len(d.queue) > 0 { // if the queue is empty, the last transaction is already being committed
		d.requestCommit()
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
