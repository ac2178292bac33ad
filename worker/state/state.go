// Package state contains the state that all parts of a worker share: its store, its run engine, and
// notifications of changes.
//
// A State is safe for concurrent use. Followers must be registered before SetContext is
// called. A Changes never holds its lock while it calls other code.
package state

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// State is the state that all parts of one worker share.
type State struct {
	Self   store.Identity // the worker's identity
	Store  *store.Store
	Engine *fsm.Engine
	Log    *slog.Logger
	Counts Counts

	Machines *Changes[bourse.MachineID]
	Volumes  *Changes[bourse.VolumeID]

	ctx   context.Context //nolint:containedctx // canceled when the daemon stops; passed to the functions that Go starts
	tasks sync.WaitGroup
}

// ErrNoMachine is the error for a machine that does not exist or was destroyed.
var ErrNoMachine = bourse.Errorf(bourse.CodeNotFound, "machine not found")

// New returns the state of a worker with an open store.
func New(self store.Identity, st *store.Store, log *slog.Logger) *State {
	s := &State{
		Self: self, Store: st, Log: log,
		Machines: newChanges[bourse.MachineID](), Volumes: newChanges[bourse.VolumeID](),
		ctx: context.Background(),
	}
	s.Engine = fsm.New(fsm.Config{Journal: st.Journal(), Log: log, Observe: s.observe})
	return s
}

// SetContext sets the context that Context returns. It must be called once, before Go is called.
func (s *State) SetContext(life context.Context) { s.ctx = life }

// Context returns a context that is canceled when the daemon stops.
func (s *State) Context() context.Context { return s.ctx }

// Go executes fn in a goroutine. fn must return when its context is done, which happens when the daemon stops.
func (s *State) Go(fn func(life context.Context)) {
	s.tasks.Go(func() { fn(s.ctx) })
}

// Wait returns once every function started by Go has returned.
func (s *State) Wait() { s.tasks.Wait() }

// Prefixes of the resource names that runs use.
const (
	machinePrefix = "machine/"
	restartPrefix = "revive/"
	updatePrefix  = "update/"
	volumePrefix  = "volume/"
)

// OfMachine returns the resource for runs on a machine. The engine executes runs on the same resource one after the
// other.
func OfMachine(id bourse.MachineID) string { return machinePrefix + string(id) }

// OfRestart returns the resource for runs that wait to restart a machine.
func OfRestart(id bourse.MachineID) string { return restartPrefix + string(id) }

// OfUpdate returns the resource for runs that prepare a machine's next version while the current version runs.
func OfUpdate(id bourse.MachineID) string { return updatePrefix + string(id) }

// OfVolume returns the resource for runs on a volume.
func OfVolume(id bourse.VolumeID) string { return volumePrefix + string(id) }

// observe is called after every durable change to a run's state.
func (s *State) observe(r fsm.Record) {
	if id, ok := strings.CutPrefix(r.Resource, machinePrefix); ok {
		s.Machines.Applied(bourse.MachineID(id))
	} else if id, ok := strings.CutPrefix(r.Resource, restartPrefix); ok {
		s.Machines.Applied(bourse.MachineID(id))
	} else if id, ok := strings.CutPrefix(r.Resource, updatePrefix); ok {
		s.Machines.Applied(bourse.MachineID(id))
	} else if id, ok := strings.CutPrefix(r.Resource, volumePrefix); ok {
		s.Volumes.Applied(bourse.VolumeID(id))
	}
}

// Started waits for the run that a claim has begun. It returns nil as soon as the run's success is visible to later
// transactions. If the run fails, Started returns the error only once the failure is durable. If it returned earlier,
// the daemon could refuse the order and crash, and the run could then be retried and fill the refused order.
func Started[Res any](ctx context.Context, run *fsm.Handle[Res]) error {
	_, err := run.Applied(ctx)
	if err != nil {
		_, err = run.Wait(ctx)
	}
	return err
}

// InTx converts a function that uses a store transaction into an fsm.Write.
func InTx(fn func(*store.Tx) error) fsm.Write {
	return func(tx fsm.Tx) error { return fn(tx.(*store.Tx)) }
}

// Sleep waits for the duration d, or until ctx is done.
func Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
