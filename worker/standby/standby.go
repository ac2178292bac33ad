// Package standby starts a worker's spares: machines that stand by for others, which
// are on other workers. The worker that has a spare watches the view and decides
// alone: there is no election, and nothing is asked of anyone.
//
//   - What it does is a pure function of what it knows (Decide), once that has been
//     so for a time.
//   - A spare is started as any machine is: from the ledger, the intent recorded
//     first, with the machine that it stands in for and an event that says why.
//   - While the view is not whole, since the worker has just started or its file was
//     lost, nothing is lost.
//   - A cluster that is cut in two may run a machine and its spare at the same time;
//     afterwards the spare stands down (ADR 58).
package standby

import (
	"context"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/quiet"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// Patience is how long a worker is not heard from before spares stand in for its
// machines, unless the operator says something else. A worker that is started again
// after an upgrade is away for about a second, and its machines go on.
const Patience = 10 * time.Second

const (
	lookEvery = 200 * time.Millisecond // at most
	lookPart  = 20                     // looking takes one part in so many of a processor
	lookAgain = 5 * time.Second        // without a change
	viewLimit = 10 * time.Second
)

// View is what the worker sees of others.
type View interface {
	// App returns the machines of an app as they were published last, and what is
	// known of the worker with a tag.
	App(ctx context.Context, app bourse.AppRef) ([]bourse.Machine, func(bourse.WorkerTag) Host, error)
	// Whole reports whether all that the others know is known here.
	Whole() bool
	// Moved returns a channel of capacity one that holds a token when any of this
	// may have changed. It is always the same channel.
	Moved() <-chan struct{}
}

// Machines are the worker's own, whose states these change. Each is repeated without
// harm.
type Machines interface {
	StandIn(ctx context.Context, id, primary bourse.MachineID, why string) error
	StandDown(ctx context.Context, id, primary bourse.MachineID, why string) error
	Rest(ctx context.Context, id, primary bourse.MachineID) error
}

// Watch watches what a worker's spares stand by for. Its fields belong to the
// goroutine of Run, but for those under mu.
type Watch struct {
	state    *state.State
	view     View
	machines Machines
	patience time.Duration
	failures quiet.Line

	spares  map[bourse.MachineID]bourse.Machine // of this worker
	pending map[bourse.MachineID]Pending
	wanted  map[bourse.AppRef]map[bourse.MachineID]bool // see Sight

	wake chan struct{} // holds a token when changed is not empty, or an act has ended

	mu      sync.Mutex
	changed map[bourse.MachineID]struct{} // guarded by mu
	busy    map[bourse.MachineID]struct{} // guarded by mu; spares about which something is being done
}

// New makes the watch of a worker, which follows its machines; patience 0 is
// Patience. It starts nothing.
func New(s *state.State, view View, machines Machines, patience time.Duration) *Watch {
	if patience == 0 {
		patience = Patience
	}
	w := &Watch{
		state: s, view: view, machines: machines, patience: patience,
		spares: map[bourse.MachineID]bourse.Machine{}, pending: map[bourse.MachineID]Pending{},
		wake: make(chan struct{}, 1), changed: map[bourse.MachineID]struct{}{}, busy: map[bourse.MachineID]struct{}{},
	}
	s.Machines.Follow(func(id bourse.MachineID, unsure bool) {
		if !unsure {
			w.note(id)
		}
	})
	return w
}

func (w *Watch) note(id bourse.MachineID) {
	w.mu.Lock()
	w.changed[id] = struct{}{}
	w.mu.Unlock()
	w.poke()
}

func (w *Watch) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run watches until ctx ends. It is called once, when the worker has recovered.
func (w *Watch) Run(ctx context.Context) error {
	if err := w.readAll(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		begin := time.Now()
		if err := w.readChanged(); err != nil {
			return err
		}
		wait := w.look(ctx)
		state.Rest(ctx, max(lookEvery, lookPart*time.Since(begin)))
		var moved <-chan struct{}
		if len(w.spares) > 0 {
			moved = w.view.Moved()
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-w.wake:
		case <-moved:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

func (w *Watch) readAll() error {
	return w.state.Store.View(func(tx *store.Tx) error {
		for m, err := range tx.Machines() {
			if err != nil {
				return err
			}
			w.keep(&m)
		}
		return nil
	})
}

// readChanged reads the machines that have changed, as far as they stand by.
func (w *Watch) readChanged() error {
	w.mu.Lock()
	changed := w.changed
	w.changed = map[bourse.MachineID]struct{}{}
	w.mu.Unlock()
	return w.state.Store.View(func(tx *store.Tx) error {
		for id := range changed {
			delete(w.spares, id)
			m, err := tx.Machine(id)
			switch {
			case err == nil:
				w.keep(&m)
			case bourse.CodeOf(err) != bourse.CodeNotFound:
				return err
			}
		}
		return nil
	})
}

func (w *Watch) keep(m *bourse.Machine) {
	if list, err := m.Config.StandsBy(); err == nil && len(list) > 0 && m.State != bourse.StateDestroyed {
		w.spares[m.ID] = *m
	}
}

// look does what is due, and returns how long to wait for what will be.
func (w *Watch) look(ctx context.Context) time.Duration {
	if len(w.spares) == 0 || !w.view.Whole() {
		clear(w.pending)
		return lookAgain
	}
	sights, err := w.sights(ctx)
	if err != nil {
		if kept, ok := w.failures.Due(); ok && ctx.Err() == nil {
			w.state.Log.Warn("read of the machines that spares stand by for failed", "err", err, "not_logged", kept)
		}
		return lookAgain
	}
	wait := lookAgain
	for id, m := range w.spares {
		if next, ok := w.weigh(&m, sights[refOf(&m)]); ok {
			wait = min(wait, next)
		} else {
			delete(w.pending, id)
		}
	}
	return wait
}

// sights reads what is known of the apps that have spares here.
func (w *Watch) sights(ctx context.Context) (map[bourse.AppRef]*Sight, error) {
	ctx, cancel := context.WithTimeout(ctx, viewLimit)
	defer cancel()
	out := map[bourse.AppRef]*Sight{}
	for _, m := range w.spares {
		app := refOf(&m)
		if out[app] == nil {
			machines, host, err := w.view.App(ctx, app)
			if err != nil {
				return nil, err
			}
			s := &Sight{Machines: make(map[bourse.MachineID]*bourse.Machine, len(machines)), Host: host, Wanted: map[bourse.MachineID]bool{}}
			for i := range machines {
				s.Machines[machines[i].ID] = &machines[i]
			}
			out[app] = s
		}
		list, _ := m.Config.StandsBy() // keep has read it
		w.remember(out[app], app, list)
	}
	w.wanted = map[bourse.AppRef]map[bourse.MachineID]bool{}
	for app, s := range out {
		w.wanted[app] = s.Wanted
	}
	return out, nil
}

// remember notes which of these machines are to run, as far as it is known now or
// was before.
func (w *Watch) remember(s *Sight, app bourse.AppRef, list []bourse.MachineID) {
	for _, id := range list {
		if m := s.Machines[id]; m != nil {
			s.Wanted[id] = Wanted(m)
		} else if w.wanted[app][id] && s.Host(id.Tag()) != HostHeard { // else it was destroyed
			s.Wanted[id] = true
		}
	}
}

func refOf(m *bourse.Machine) bourse.AppRef { return bourse.AppRef{Name: m.App, ID: m.AppID} }

// weigh decides about one spare, and begins what is due. ok is false when there is
// nothing to wait for.
func (w *Watch) weigh(m *bourse.Machine, s *Sight) (wait time.Duration, ok bool) {
	v := Decide(m, s, w.patience)
	if v.Act == ActNone {
		return 0, false
	}
	p := w.pending[m.ID]
	due, wait := p.Due(v, time.Now())
	w.pending[m.ID] = p
	if due {
		w.act(m.ID, v)
	}
	return wait, true
}

// act does what was decided, beside all else: a start may wait for an image.
func (w *Watch) act(id bourse.MachineID, v Verdict) {
	w.mu.Lock()
	_, already := w.busy[id]
	w.busy[id] = struct{}{}
	w.mu.Unlock()
	if already {
		return
	}
	w.state.Go(func(ctx context.Context) {
		var err error
		switch v.Act {
		case ActStandIn:
			err = w.machines.StandIn(ctx, id, v.Primary, v.Why)
		case ActStandDown:
			err = w.machines.StandDown(ctx, id, v.Primary, v.Why)
		case ActRest:
			err = w.machines.Rest(ctx, id, v.Primary)
		case ActNone:
		}
		w.mu.Lock()
		delete(w.busy, id)
		w.mu.Unlock()
		switch {
		case err != nil:
			if kept, ok := w.failures.Due(); ok && ctx.Err() == nil {
				w.state.Log.Warn("act of a standby failed", "act", v.Act, "machine", id, "for", v.Primary, "err", err, "not_logged", kept)
			}
		case v.Act != ActRest:
			w.state.Log.Info("act of a standby", "act", v.Act, "machine", id, "for", v.Primary, "why", v.Why)
		}
		w.note(id)
	})
}
