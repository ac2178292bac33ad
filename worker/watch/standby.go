package watch

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/quiet"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// DefaultFailoverDelay is the default time for which a worker must be lost before standbys replace its machines. A
// restart of a worker's daemon after an upgrade takes only about a second, and its machines keep running.
const DefaultFailoverDelay = 10 * time.Second

const (
	minLookInterval = 200 * time.Millisecond // minimum interval between two reads of the cluster's state
	lookDivisor     = 20                     // reading the cluster's state uses at most 1/lookDivisor of a CPU
	lookInterval    = 5 * time.Second        // interval between two reads if nothing changes
)

// StandbyView provides information about other workers and their machines.
type StandbyView interface {
	// App returns an app's machines as they were last published, and a function that returns the state of the worker
	// with a given tag.
	App(ctx context.Context, app bourse.AppRef) ([]bourse.Machine, func(bourse.WorkerTag) Host, error)
	// Complete reports whether the view contains all rows that other members have.
	Complete() bool
	// Changed returns a channel of capacity one that contains a token if the results of the other methods may have
	// changed. Every call returns the same channel.
	Changed() <-chan struct{}
}

// Promoter promotes and demotes the worker's standbys. Its methods are idempotent.
type Promoter interface {
	Promote(ctx context.Context, id, primary bourse.MachineID, why string) error
	Demote(ctx context.Context, id, primary bourse.MachineID, why string) error
	ResetStandby(ctx context.Context, id, primary bourse.MachineID) error
}

// Standbys watches the machines that this worker's standbys can replace, and promotes and demotes the standbys. Only
// Run's goroutine may use its fields, except for busy and the follower.
type Standbys struct {
	*follower
	state         *state.State
	view          StandbyView
	machines      Promoter
	failoverDelay time.Duration
	failures      quiet.Line

	standbys map[bourse.MachineID]bourse.Machine // this worker's standbys
	pending  map[bourse.MachineID]Pending
	wanted   map[bourse.AppRef]map[bourse.MachineID]bool // for each app, StandbyInput.Wanted from the previous decisions

	busy busySet // standbys that are being promoted, demoted or reset
}

// NewStandbys returns a worker's standby watcher. It does nothing until Run is called. If failoverDelay is 0,
// NewStandbys uses DefaultFailoverDelay.
func NewStandbys(s *state.State, view StandbyView, machines Promoter, failoverDelay time.Duration) *Standbys {
	if failoverDelay == 0 {
		failoverDelay = DefaultFailoverDelay
	}
	return &Standbys{
		follower: follow(s), state: s, view: view, machines: machines, failoverDelay: failoverDelay,
		standbys: map[bourse.MachineID]bourse.Machine{}, pending: map[bourse.MachineID]Pending{},
	}
}

// Run watches the standbys until ctx is done. It must be called once, after the worker
// has recovered.
func (w *Standbys) Run(ctx context.Context) error {
	if err := w.noteAll(w.state); err != nil {
		return err
	}
	for ctx.Err() == nil {
		begin := time.Now()
		if err := w.readChanged(); err != nil {
			return err
		}
		wait := w.look(ctx)
		state.Sleep(ctx, max(minLookInterval, lookDivisor*time.Since(begin)))
		var moved <-chan struct{}
		if len(w.standbys) > 0 {
			moved = w.view.Changed()
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

// readChanged reads the records of changed machines, and updates the list of standbys.
func (w *Standbys) readChanged() error {
	changed := w.take()
	return w.state.Store.View(func(tx *store.Tx) error {
		for id := range changed {
			delete(w.standbys, id)
			m, err := tx.Machine(id)
			switch {
			case err == nil:
				w.update(&m)
			case bourse.CodeOf(err) != bourse.CodeNotFound:
				return err
			}
		}
		return nil
	})
}

func (w *Standbys) update(m *bourse.Machine) {
	if len(m.Config.Standbys) > 0 && m.State != bourse.StateDestroyed {
		w.standbys[m.ID] = *m
	}
}

// look begins the actions that are due, and returns how long to wait before the next call.
func (w *Standbys) look(ctx context.Context) time.Duration {
	if len(w.standbys) == 0 || !w.view.Complete() {
		clear(w.pending)
		return lookInterval
	}
	sights, err := w.readInputs(ctx)
	if err != nil {
		if kept, ok := w.failures.Due(); ok && ctx.Err() == nil {
			w.state.Log.Warn("read primary machines of standbys failed", "err", err, "not_logged", kept)
		}
		return lookInterval
	}
	wait := lookInterval
	for id, m := range w.standbys {
		if next, ok := w.decide(&m, sights[refOf(&m)]); ok {
			wait = min(wait, next)
		} else {
			delete(w.pending, id)
		}
	}
	return wait
}

// readInputs collects the information about all apps that have standbys on this worker.
func (w *Standbys) readInputs(ctx context.Context) (map[bourse.AppRef]*StandbyInput, error) {
	ctx, cancel := context.WithTimeout(ctx, viewLimit)
	defer cancel()
	out := map[bourse.AppRef]*StandbyInput{}
	for _, m := range w.standbys {
		app := refOf(&m)
		if out[app] == nil {
			machines, host, err := w.view.App(ctx, app)
			if err != nil {
				return nil, err
			}
			s := &StandbyInput{Machines: make(map[bourse.MachineID]*bourse.Machine, len(machines)), Host: host, Wanted: map[bourse.MachineID]bool{}}
			for i := range machines {
				s.Machines[machines[i].ID] = &machines[i]
			}
			out[app] = s
		}
		w.remember(out[app], app, m.Config.Standbys)
	}
	w.wanted = map[bourse.AppRef]map[bourse.MachineID]bool{}
	for app, s := range out {
		w.wanted[app] = s.Wanted
	}
	return out, nil
}

// remember fills in s.Wanted for the machines in list. If the view no longer contains a machine and its worker is not
// reachable, remember keeps the previous value.
func (w *Standbys) remember(s *StandbyInput, app bourse.AppRef, list []bourse.MachineID) {
	for _, id := range list {
		if m := s.Machines[id]; m != nil {
			s.Wanted[id] = Wanted(m)
		} else if w.wanted[app][id] && s.Host(id.Tag()) != HostReachable { // if the worker is still a member, the machine was destroyed
			s.Wanted[id] = true
		}
	}
}

func refOf(m *bourse.Machine) bourse.AppRef { return bourse.AppRef{Name: m.App, ID: m.AppID} }

// decide decides whether to change a standby, and begins the action if it is due. wait is the time until the next
// decision. ok is false if no action is pending for the standby.
func (w *Standbys) decide(m *bourse.Machine, s *StandbyInput) (wait time.Duration, ok bool) {
	v := DecideStandby(m, s, w.failoverDelay)
	if v.Act == StayStandby {
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

// act carries out a decision in the background, because a start may wait for an image.
func (w *Standbys) act(id bourse.MachineID, v StandbyDecision) {
	if !w.busy.begin(id) {
		return
	}
	w.state.Go(func(ctx context.Context) {
		var err error
		switch v.Act {
		case Promote:
			err = w.machines.Promote(ctx, id, v.Primary, v.Why)
		case Demote:
			err = w.machines.Demote(ctx, id, v.Primary, v.Why)
		case ResetStandby:
			err = w.machines.ResetStandby(ctx, id, v.Primary)
		case StayStandby:
		}
		w.busy.end(id)
		switch {
		case err != nil:
			if kept, ok := w.failures.Due(); ok && ctx.Err() == nil {
				w.state.Log.Warn("change standby failed", "act", v.Act, "machine", id, "for", v.Primary, "err", err, "not_logged", kept)
			}
		case v.Act != ResetStandby:
			w.state.Log.Info("standby changed", "act", v.Act, "machine", id, "for", v.Primary, "why", v.Why)
		}
		w.note(id)
	})
}
