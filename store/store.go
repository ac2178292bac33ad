package store

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/bourse-dev/bourse/store/kv"
)

// FileName is the name of the kv snapshot in the store's directory.
const FileName = kv.FileName

// DefaultKeep is the default of Config.Keep.
const DefaultKeep = time.Hour

// Config configures a Store.
type Config struct {
	Dir          string                         // required; created with mode 0700 if missing
	Log          *slog.Logger                   // default: discards all records
	Keep         time.Duration                  // how long Prune retains destroyed machines, orders and ended runs; default DefaultKeep
	Fault        func(FaultStage, uint64) error // for tests; see kv.Config
	Failed       func(error)                    // see kv.Config
	maxDestroyed int                            // number of destroyed machines that Prune retains; default maxDestroyed
	maxRuns      int                            // number of ended runs that Prune retains; default maxRuns
	logFileSize  int64                          // see kv.Config
}

// FaultStage is a stage of a commit at which Config.Fault is called.
type FaultStage = kv.FaultStage

// Stages of a commit; see package kv.
const (
	FaultBefore = kv.FaultBefore
	FaultAfter  = kv.FaultAfter
)

// Commit is a submitted transaction.
type Commit = kv.Commit

// Store is an open store. It is safe for concurrent use.
type Store struct {
	*engine
	keep         time.Duration
	maxDestroyed int
	maxRuns      int
}

type engine = kv.DB

// Open opens the store in cfg.Dir, creating it if it does not exist. It starts one goroutine, which
// Close stops. Errors: CodeAlreadyExists if another daemon has the store open,
// CodeFailedPrecondition if the store's schema has another version, CodeInternal if the store is
// damaged. In all these cases, Open does not change the files.
func Open(cfg Config) (*Store, error) {
	db, err := kv.Open(kv.Config{Dir: cfg.Dir, Schema: schema(), Log: cfg.Log, Fault: cfg.Fault, Failed: cfg.Failed, LogFileSize: cfg.logFileSize})
	if err != nil {
		return nil, err
	}
	s := &Store{engine: db, keep: cfg.Keep, maxDestroyed: cmp.Or(cfg.maxDestroyed, maxDestroyed), maxRuns: cmp.Or(cfg.maxRuns, maxRuns)}
	if s.keep <= 0 {
		s.keep = DefaultKeep
	}
	return s, nil
}

// View executes fn on a snapshot of the durable state; see [kv.DB.View].
func (s *Store) View(fn func(*Tx) error) error {
	return s.engine.View(func(t kv.Tx) error { return fn(&Tx{kv: t}) })
}

// Submit queues fn; see [kv.DB.Submit].
func (s *Store) Submit(fn func(*Tx) error) *Commit {
	return s.engine.Submit(func(t kv.Tx) error { return fn(&Tx{kv: t, writes: true}) })
}

// SubmitRelaxed queues fn for a later commit; see [kv.DB.SubmitRelaxed].
func (s *Store) SubmitRelaxed(fn func(*Tx) error) *Commit {
	return s.engine.SubmitRelaxed(func(t kv.Tx) error { return fn(&Tx{kv: t, writes: true}) })
}

// Update submits fn and waits until its changes are durable. If ctx is done first, the outcome is
// unknown.
func (s *Store) Update(ctx context.Context, fn func(*Tx) error) error {
	return s.Submit(fn).Wait(ctx)
}
