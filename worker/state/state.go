// Package state contains what all parts of a worker share: its store, the engine of its
// runs, and notifications of changes.
//
// A State is safe for concurrent use. Followers are registered before Begin. The locks
// of News are never held during other calls.
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

// State is shared by the parts of one worker.
type State struct {
	Self   store.Identity // the worker's
	Store  *store.Store
	Engine *fsm.Engine
	Log    *slog.Logger
	Counts Counts

	Machines *News[bourse.MachineID]
	Volumes  *News[bourse.VolumeID]

	life  context.Context //nolint:containedctx // the life of the daemon, for what Go starts and Wait waits for
	tasks sync.WaitGroup
}

// ErrNoMachine is the error for a machine that does not exist, or no longer.
var ErrNoMachine = bourse.Errorf(bourse.CodeNotFound, "machine not found")

// New returns the state of a worker with an open store. It starts nothing.
func New(self store.Identity, st *store.Store, log *slog.Logger) *State {
	s := &State{
		Self: self, Store: st, Log: log,
		Machines: newNews[bourse.MachineID](), Volumes: newNews[bourse.VolumeID](),
		life: context.Background(),
	}
	s.Engine = fsm.New(fsm.Config{Journal: st.Journal(), Log: log, Observe: s.observe})
	return s
}

// Begin sets the context of the daemon's life. It must be called once, before Go.
func (s *State) Begin(life context.Context) { s.life = life }

// Life returns a context that ends when the daemon stops.
func (s *State) Life() context.Context { return s.life }

// Go executes fn in a goroutine that must return when Life ends.
func (s *State) Go(fn func(life context.Context)) {
	s.tasks.Go(func() { fn(s.life) })
}

// Wait returns once every function started by Go has returned.
func (s *State) Wait() { s.tasks.Wait() }

// Prefixes of runs' resources.
const (
	machinePrefix = "machine/"
	revivalPrefix = "revive/"
	updatePrefix  = "update/"
	volumePrefix  = "volume/"
)

// OfMachine returns the resource of the runs on a machine.
func OfMachine(id bourse.MachineID) string { return machinePrefix + string(id) }

// OfRevival returns the resource of the runs that wait to restart a machine. They have
// a separate queue.
func OfRevival(id bourse.MachineID) string { return revivalPrefix + string(id) }

// OfUpdate returns the resource of the runs that prepare a machine's next version while
// the present one runs.
func OfUpdate(id bourse.MachineID) string { return updatePrefix + string(id) }

// OfVolume returns the resource of the runs on a volume.
func OfVolume(id bourse.VolumeID) string { return volumePrefix + string(id) }

// observe receives every durable transition of a run.
func (s *State) observe(r fsm.Record) {
	if id, ok := strings.CutPrefix(r.Resource, machinePrefix); ok {
		s.Machines.Changed(bourse.MachineID(id))
	} else if id, ok := strings.CutPrefix(r.Resource, revivalPrefix); ok {
		s.Machines.Changed(bourse.MachineID(id))
	} else if id, ok := strings.CutPrefix(r.Resource, updatePrefix); ok {
		s.Machines.Changed(bourse.MachineID(id))
	} else if id, ok := strings.CutPrefix(r.Resource, volumePrefix); ok {
		s.Volumes.Changed(bourse.VolumeID(id))
	}
}

// Started waits for the run that a claim has begun. It returns nil as soon as later
// transactions see the run's success, but a failure only once it is durable: until then, a
// crash makes the run try again, and an order that was refused could be filled here.
func Started[Res any](ctx context.Context, run *fsm.Handle[Res]) error {
	_, err := run.Applied(ctx)
	if err != nil {
		_, err = run.Wait(ctx)
	}
	return err
}

// InTx converts a function of a store transaction to a run's write.
func InTx(fn func(*store.Tx) error) fsm.Write {
	return func(tx fsm.Tx) error { return fn(tx.(*store.Tx)) }
}

// Rest returns after d, or when ctx ends.
func Rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
