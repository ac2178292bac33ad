package store

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/bourse-dev/bourse/store/kv"
)

// FileName is the name of the store's file in its directory.
const FileName = kv.FileName

// DefaultKeep is how long what has ended is kept.
const DefaultKeep = time.Hour

// Config says where a store is.
type Config struct {
	Dir     string                         // required; made with mode 0700 when missing
	Log     *slog.Logger                   // default: discards
	Keep    time.Duration                  // how long Prune keeps destroyed machines, orders and ended runs; default DefaultKeep
	Fault   func(FaultStage, uint64) error // for tests; see kv.Config
	Failed  func(error)                    // see kv.Config
	maxGone int                            // how many destroyed machines Prune keeps; default maxGone
	maxRuns int                            // how many ended runs Prune keeps; default maxRuns
	turn    int64                          // see kv.Config
}

// FaultStage says on which side of a commit Config.Fault is called.
type FaultStage = kv.FaultStage

// The stages; see package kv.
const (
	FaultBefore = kv.FaultBefore
	FaultAfter  = kv.FaultAfter
)

// Commit is a submitted transaction.
type Commit = kv.Commit

// Store is an open store. It is safe for concurrent use.
type Store struct {
	*engine
	keep    time.Duration
	maxGone int
	maxRuns int
}

type engine = kv.DB

// Open opens the store in cfg.Dir, and makes it when there is none. It starts
// the store's one goroutine; Close ends it. CodeAlreadyExists: another daemon
// has the file open. CodeFailedPrecondition: it is of a newer release.
// CodeInternal: it is damaged. In these cases the file is as it was.
func Open(cfg Config) (*Store, error) {
	db, err := kv.Open(kv.Config{Dir: cfg.Dir, Schema: schema(), Log: cfg.Log, Fault: cfg.Fault, Failed: cfg.Failed, Turn: cfg.turn})
	if err != nil {
		return nil, err
	}
	s := &Store{engine: db, keep: cfg.Keep, maxGone: cmp.Or(cfg.maxGone, maxGone), maxRuns: cmp.Or(cfg.maxRuns, maxRuns)}
	if s.keep <= 0 {
		s.keep = DefaultKeep
	}
	return s, nil
}

// View executes fn on a snapshot of what is durable; see [kv.DB.View].
func (s *Store) View(fn func(*Tx) error) error {
	return s.engine.View(func(t kv.Tx) error { return fn(&Tx{kv: t}) })
}

// Submit queues fn; see [kv.DB.Submit].
func (s *Store) Submit(fn func(*Tx) error) *Commit {
	return s.engine.Submit(func(t kv.Tx) error { return fn(&Tx{kv: t, writes: true}) })
}

// SubmitRelaxed queues fn for the commit of the next one; see [kv.DB.SubmitRelaxed].
func (s *Store) SubmitRelaxed(fn func(*Tx) error) *Commit {
	return s.engine.SubmitRelaxed(func(t kv.Tx) error { return fn(&Tx{kv: t, writes: true}) })
}

// Update submits fn and waits until it is durable. When ctx ends first the
// outcome is unknown.
func (s *Store) Update(ctx context.Context, fn func(*Tx) error) error {
	return s.Submit(fn).Wait(ctx)
}
