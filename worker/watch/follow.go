// Package watch contains a worker's watchers, which follow its machines and act on them:
//
//   - Idle stops or suspends machines that nobody uses.
//   - Schedules starts machines at the times in their configurations.
//   - Checks runs health checks and records their results.
//   - Standbys starts standbys for machines whose workers are lost.
//
// Each watcher is one goroutine. When a machine's record changes, the watcher reads the record, and a pure function
// decides whether to act. The watcher repeats the decision in the transaction that records its action. A watcher does
// not persist its own state: after a restart, it reads all machines again.
package watch

import (
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// follower collects the ids of a worker's changed machines for a watcher.
type follower struct {
	wake chan struct{} // contains a token if changed is not empty, or after poke

	mu      sync.Mutex
	changed map[bourse.MachineID]struct{} // guarded by mu
}

// follow returns a follower that collects changes to a worker's machines. It must be called before the worker runs.
func follow(s *state.State) *follower {
	f := &follower{wake: make(chan struct{}, 1), changed: map[bourse.MachineID]struct{}{}}
	s.Machines.Follow(func(id bourse.MachineID, unsure bool) {
		if !unsure {
			f.note(id)
		}
	})
	return f
}

// note records that a machine has changed.
func (f *follower) note(id bourse.MachineID) {
	f.mu.Lock()
	f.changed[id] = struct{}{}
	f.mu.Unlock()
	f.poke()
}

// noteAll notes all machines in the store. A watcher calls it when it starts.
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

// busySet contains the machines that a watcher is acting on in the background.
type busySet struct {
	mu  sync.Mutex
	ids map[bourse.MachineID]struct{} // guarded by mu
}

// begin adds a machine. It returns false if the set already contains the machine, because
// an action on it is in progress.
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

// end removes a machine.
func (b *busySet) end(id bourse.MachineID) {
	b.mu.Lock()
	delete(b.ids, id)
	b.mu.Unlock()
}
