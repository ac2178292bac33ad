package logs

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// keptMachine is the keeper's table entry for a machine that is in use. Changes to its sources are serialized.
type keptMachine struct {
	log      *Log
	refs     int           // number of users; guarded by the table's mutex
	changing chan struct{} // has capacity 1; full while a goroutine is changing sources

	sources map[int]*openSource // by boot; accessed only by the goroutine that has filled changing
}

// doneGrace is how long to wait for an output to end after the program has ended. The process that copies the output
// may need a moment to finish, or another process may still hold the output open.
const doneGrace = 2 * time.Second

// hold returns a machine's entry, which the caller must pass to release.
func (k *server) hold(id bourse.MachineID) (*keptMachine, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopping {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "the keeper is shutting down")
	}
	m := k.machines[id]
	if m == nil {
		m = &keptMachine{log: k.layout.files().Log(id), changing: make(chan struct{}, 1), sources: map[int]*openSource{}}
		m.log.Configure(k.settings.Bytes, k.settings.Files)
		k.machines[id] = m
	}
	m.refs++
	return m, nil
}

// release releases an entry. An entry without users is removed from the table.
func (k *server) release(id bourse.MachineID, m *keptMachine) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m.refs--; m.refs > 0 {
		return
	}
	m.log.Close()
	if k.machines[id] == m {
		delete(k.machines, id)
	}
}

// change calls fn with a machine's entry. Calls for the same machine run one at a time. change returns an error if the
// keeper is shutting down.
func (k *server) change(ctx context.Context, id bourse.MachineID, fn func(m *keptMachine) error) error {
	if err := id.Validate(); err != nil {
		return err
	}
	for {
		m, err := k.hold(id)
		if err != nil {
			return err
		}
		again, err := k.tryChange(ctx, id, m, fn)
		k.release(id, m)
		if !again {
			return err
		}
	}
}

// tryChange waits for its turn and then calls fn with the entry m. It returns again=true, without calling fn, if the
// machine was destroyed while tryChange waited. The caller must then try again with the machine's new entry.
func (k *server) tryChange(ctx context.Context, id bourse.MachineID, m *keptMachine, fn func(m *keptMachine) error) (again bool, err error) {
	select {
	case m.changing <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	defer func() { <-m.changing }()
	k.mu.Lock()
	current := k.machines[id] == m
	k.mu.Unlock()
	if !current {
		return true, nil
	}
	return false, fn(m)
}

// keep starts reading a source, unless the source is already being read.
func (k *server) keep(ctx context.Context, src Source) error {
	if err := src.validate(); err != nil {
		return err
	}
	return k.change(ctx, src.Machine, func(m *keptMachine) error {
		if have := m.sources[src.Boot]; have != nil {
			if have.Source != src {
				return bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s: boot %d already has other outputs", src.Machine, src.Boot)
			}
			return nil
		}
		s, err := newSource(src, m.log)
		if err != nil {
			return err
		}
		if err := k.begin(m, s); err != nil {
			s.release()
			return err
		}
		s.run()
		return nil
	})
}

// begin adds a source to a machine's entry. The source counts as a user of the entry until it is passed to end.
func (k *server) begin(m *keptMachine, s *openSource) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopping {
		return bourse.Errorf(bourse.CodeUnavailable, "the keeper is shutting down")
	}
	m.refs++
	k.reading++
	m.sources[s.Boot] = s
	return nil
}

func (k *server) end(m *keptMachine, s *openSource) {
	s.release()
	delete(m.sources, s.Boot)
	k.mu.Lock()
	m.refs-- // cannot become 0, because the caller also holds the entry
	k.reading--
	k.mu.Unlock()
	k.wakeUp()
}

// done stops reading a source whose task has ended. When it returns nil, all of the source's output is in the log.
// If the source is not being read but its FIFOs exist, done reads them first.
func (k *server) done(ctx context.Context, src Source) error {
	if err := k.keep(ctx, src); err != nil && bourse.CodeOf(err) != bourse.CodeNotFound {
		return err
	}
	return k.change(ctx, src.Machine, func(m *keptMachine) error {
		s := m.sources[src.Boot]
		if s == nil {
			return nil
		}
		if err := s.stop(ctx, doneGrace); err != nil {
			return err
		}
		k.end(m, s)
		return nil
	})
}

// destroy removes all data stored for a machine.
func (k *server) destroy(ctx context.Context, id bourse.MachineID) error {
	return k.change(ctx, id, func(m *keptMachine) error {
		for _, s := range m.sources {
			if err := s.stop(ctx, 0); err != nil {
				return err
			}
			k.end(m, s)
		}
		if err := m.log.Destroy(); err != nil {
			return err
		}
		// Remove the entry, so that later users get a new Log. Goroutines that watch the old Log have been
		// notified.
		k.mu.Lock()
		if k.machines[id] == m {
			delete(k.machines, id)
		}
		k.mu.Unlock()
		return k.layout.files().Remove(id)
	})
}

// watch calls news immediately, and again whenever there are new lines in a machine's log. It returns nil when the
// machine is destroyed.
func (k *server) watch(ctx context.Context, id bourse.MachineID, news func()) error {
	if err := id.Validate(); err != nil {
		return err
	}
	m, err := k.hold(id)
	if err != nil {
		return err
	}
	defer k.release(id, m)
	return m.log.Watch(ctx, news)
}

// stopReading stops reading all sources. The keeper must be stopping.
func (k *server) stopReading() {
	k.mu.Lock()
	machines := slices.Collect(maps.Values(k.machines))
	k.mu.Unlock()
	for _, m := range machines {
		m.changing <- struct{}{} // never released, so that the entry's sources can no longer be changed
		for _, s := range m.sources {
			_ = s.stop(context.Background(), 0) // cannot fail, because its context does not end
			s.release()
		}
		m.log.Close()
	}
}

// retire marks an idle keeper as stopping. It returns false if the keeper is reading a source
// or is already stopping.
func (k *server) retire() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.reading > 0 || k.stopping { // if stopping is set, the process is already exiting
		return false
	}
	k.stopping = true
	return true
}
