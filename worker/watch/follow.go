// Package watch contains a worker's watchers, which follow its machines and act on them:
//
//   - Idle stops or suspends machines that nobody uses.
//   - Schedules starts machines at the times in their configurations.
//   - Checks runs health checks and records their results.
//   - Standbys starts machines that stand by for others on lost workers.
//
// Each watcher is one goroutine around pure decisions: a change of a machine's record
// wakes it, it reads the record, decides, and repeats the decision in the transaction
// that records what it does. A watcher keeps nothing that matters: after a restart it
// reads all machines again.
package watch

import (
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// follower collects the ids of a worker's machines that have changed.
type follower struct {
	wake chan struct{} // holds a token if changed is not empty, or after poke

	mu      sync.Mutex
	changed map[bourse.MachineID]struct{} // guarded by mu
}

// follow returns a follower of a worker's machines. It must be called before the worker
// starts.
func follow(s *state.State) *follower {
	f := &follower{wake: make(chan struct{}, 1), changed: map[bourse.MachineID]struct{}{}}
	s.Machines.Follow(func(id bourse.MachineID, unsure bool) {
		if !unsure {
			f.note(id)
		}
	})
	return f
}

// note adds a machine to those that have changed.
func (f *follower) note(id bourse.MachineID) {
	f.mu.Lock()
	f.changed[id] = struct{}{}
	f.mu.Unlock()
	f.poke()
}

// noteAll adds all machines of the store, as a watcher does when it starts.
func (f *follower) noteAll(s *state.State) error {
	return s.Store.View(func(tx *store.Tx) error {
		for m, err := range tx.Machines() {
			if err != nil {
				return err
			}
			f.note(m.ID)
		}
		return nil
	})
}

// poke wakes the watcher.
func (f *follower) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// take returns the machines that have changed since the last call.
func (f *follower) take() map[bourse.MachineID]struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.changed
	f.changed = map[bourse.MachineID]struct{}{}
	return out
}

// busySet holds the machines on which a watcher is acting in the background.
type busySet struct {
	mu  sync.Mutex
	ids map[bourse.MachineID]struct{} // guarded by mu
}

// begin reports whether no action on the machine was in progress, and adds one.
func (b *busySet) begin(id bourse.MachineID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.ids[id]; ok {
		return false
	}
	if b.ids == nil {
		b.ids = map[bourse.MachineID]struct{}{}
	}
	b.ids[id] = struct{}{}
	return true
}

// end removes a machine's action.
func (b *busySet) end(id bourse.MachineID) {
	b.mu.Lock()
	delete(b.ids, id)
	b.mu.Unlock()
}
