// Package state is the kernel of a worker, which every part of it stands on:
// its store, the engine of its runs, and the news of what changes. It has no
// business of its own.
//
// A State is used by any number of goroutines. What follows the news is
// registered before Begin; News is the only lock, and is held over nothing.
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

// State is what the parts of one worker share.
type State struct {
	Self   store.Identity // who the worker is
	Store  *store.Store
	Engine *fsm.Engine
	Log    *slog.Logger
	Counts Counts

	Machines *News[bourse.MachineID]
	Volumes  *News[bourse.VolumeID]

	life  context.Context //nolint:containedctx // the life of the daemon, for what Go starts and Wait waits for
	tasks sync.WaitGroup
}

// ErrNoMachine is the answer for a machine that is not, or no longer, there.
var ErrNoMachine = bourse.Errorf(bourse.CodeNotFound, "machine not found")

// New makes the state of a worker on its open store. It starts nothing.
func New(self store.Identity, st *store.Store, log *slog.Logger) *State {
	s := &State{
		Self: self, Store: st, Log: log,
		Machines: newNews[bourse.MachineID](), Volumes: newNews[bourse.VolumeID](),
		life: context.Background(),
	}
	s.Engine = fsm.New(fsm.Config{Journal: st.Journal(), Log: log, Observe: s.observe})
	return s
}

// Begin says how long the daemon lives. It is called once, before Go.
func (s *State) Begin(life context.Context) { s.life = life }

// Life is a context that ends when the daemon does.
func (s *State) Life() context.Context { return s.life }

// Go runs fn beside everything else, until Life ends at the latest.
func (s *State) Go(fn func(life context.Context)) {
	s.tasks.Go(func() { fn(s.life) })
}

// Wait returns when everything that Go has started has ended.
func (s *State) Wait() { s.tasks.Wait() }

// Prefixes of the resources that runs are about.
const (
	machinePrefix = "machine/"
	revivalPrefix = "revive/"
	updatePrefix  = "update/"
	volumePrefix  = "volume/"
)

// OfMachine is the resource of the runs on a machine.
func OfMachine(id bourse.MachineID) string { return machinePrefix + string(id) }

// OfRevival is the resource of the runs that wait to restart a machine, which
// have a queue of their own.
func OfRevival(id bourse.MachineID) string { return revivalPrefix + string(id) }

// OfUpdate is the resource of the runs that prepare a machine's next version
// while others go on with the present one.
func OfUpdate(id bourse.MachineID) string { return updatePrefix + string(id) }

// OfVolume is the resource of the runs on a volume.
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

// InTx makes a function of the store's transaction one for a run.
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
