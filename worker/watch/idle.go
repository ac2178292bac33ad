package watch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/quiet"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
	"github.com/bourse-dev/bourse/workload"
)

// IdleAfter is the default idle time after which a machine is stopped.
const IdleAfter = time.Minute

const (
	idleBatchDelay = 100 * time.Millisecond // how long to wait for more changes
	retryAfter     = 5 * time.Second        // delay after a failed stop
	viewLimit      = 10 * time.Second
)

// Stopper stops the worker's machines.
type Stopper interface {
	// StopIf stops a machine, or suspends it if freeze is set. It calls check in the transaction that records the
	// change. check must return the reason for the stop, or an error that prevents it.
	StopIf(ctx context.Context, id bourse.MachineID, freeze bool, check func(*store.Tx, *bourse.Machine) (why string, err error)) error
}

// IdleConfig configures an Idle.
type IdleConfig struct {
	State    *state.State
	Tracker  *Tracker
	Machines Stopper
	View     StandbyView   // other workers' machines; if nil, only this worker's machines are considered
	After    time.Duration // how long a machine must be unused before it is stopped; 0 means [IdleAfter]
	Awake    *Awake        // nil if programs cannot keep their machines awake
}

// Idle stops or suspends a worker's machines that nobody uses.
type Idle struct {
	IdleConfig
	*follower
	failures quiet.Line
	due      map[bourse.MachineID]time.Time // when to decide about each machine; used only by Run's goroutine
	busy     busySet                        // machines that this watcher is stopping
}

// NewIdle returns a worker's idle watcher. It does nothing until Run is called.
func NewIdle(cfg IdleConfig) *Idle {
	if cfg.After == 0 {
		cfg.After = IdleAfter
	}
	w := &Idle{IdleConfig: cfg, follower: follow(cfg.State), due: map[bourse.MachineID]time.Time{}}
	cfg.Tracker.ended = w.note
	return w
}

// Run stops machines that nobody uses, until ctx is done. It must be called once, after
// the worker has recovered.
func (w *Idle) Run(ctx context.Context) error {
	if err := w.noteAll(w.State); err != nil {
		return err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
			state.Sleep(ctx, min(idleBatchDelay, w.After))
		case <-timer.C:
		}
		now := time.Now()
		for id := range w.take() {
			w.due[id] = now
		}
		next := now.Add(time.Hour) // a change to a machine wakes Run earlier
		for id, at := range w.due {
			if !at.After(now) {
				at = w.look(ctx, id, now)
			}
			if !at.IsZero() && at.Before(next) {
				next = at
			}
		}
		timer.Reset(time.Until(next))
	}
}

// look decides whether to stop a machine. If so, it stops the machine in the background. It returns the time of the
// next decision. If that time is zero, the next decision is due when the machine changes.
func (w *Idle) look(ctx context.Context, id bourse.MachineID, now time.Time) time.Time {
	v, app, err := w.decide(ctx, id, now)
	switch {
	case bourse.CodeOf(err) == bourse.CodeNotFound:
		w.Tracker.Forget(id)
		if w.Awake != nil {
			w.Awake.Close(id)
		}
	case err != nil:
		w.failed(ctx, id, err)
		v.Look = now.Add(retryAfter)
	case v.Act != KeepRunning:
		v.Look = now.Add(retryAfter) // a change to the machine's record wakes Run earlier
		w.stop(id, v.Act, app)
	}
	delete(w.due, id)
	if !v.Look.IsZero() {
		w.due[id] = v.Look
	}
	return v.Look
}

func (w *Idle) failed(ctx context.Context, id bourse.MachineID, err error) {
	if kept, ok := w.failures.Due(); ok && ctx.Err() == nil {
		w.State.Log.Warn("stop idle machine failed, will retry", "machine", id, "err", err, "not_logged", kept)
	}
}

// otherMachines contains an app's machines on other workers.
type otherMachines struct {
	machines []bourse.Machine
	unknown  bool // set if the machines are not known at the moment
}

// decide decides whether to stop a machine. It reads the app's machines on other workers only if the decision depends
// on them.
func (w *Idle) decide(ctx context.Context, id bourse.MachineID, now time.Time) (v IdleDecision, others otherMachines, err error) {
	var app bourse.AppRef
	ask := func(others otherMachines) error {
		return w.State.Store.View(func(tx *store.Tx) error {
			m, err := tx.Machine(id)
			if err != nil {
				return err
			}
			if m.State == bourse.StateDestroyed {
				return state.ErrNoMachine
			}
			w.updateSocket(ctx, &m)
			app = bourse.AppRef{Name: m.App, ID: m.AppID}
			v, err = w.decideInTx(tx, &m, others, now)
			return err
		})
	}
	if err := ask(others); err != nil || !v.Others || w.View == nil {
		return v, others, err
	}
	if others.unknown = !w.View.Complete(); !others.unknown {
		ctx, cancel := context.WithTimeout(ctx, viewLimit)
		defer cancel()
		if others.machines, err = running(ctx, w.View, app); err != nil {
			return v, others, err
		}
	}
	return v, others, ask(others)
}

// updateSocket listens on the socket of a running machine, and removes the socket of a stopped
// one.
func (w *Idle) updateSocket(ctx context.Context, m *bourse.Machine) {
	switch {
	case w.Awake == nil || len(m.Config.Services) == 0 || m.Config.ImageKind() != bourse.HostImage:
	case m.State == bourse.StateStarted:
		if err := w.Awake.Listen(m.ID); err != nil {
			w.failed(ctx, m.ID, err)
		}
	case m.State == bourse.StateStopped || m.State == bourse.StateFailed:
		w.Awake.Close(m.ID)
	}
}

// decideInTx decides whether to stop m, whose record was read in tx.
func (w *Idle) decideInTx(tx *store.Tx, m *bourse.Machine, others otherMachines, now time.Time) (IdleDecision, error) {
	list := workload.Services(&m.Config)
	if workload.AutostopOf(list) == workload.AutostopOff || m.State != bourse.StateStarted {
		return IdleDecision{}, nil
	}
	started, err := startedAt(tx, m.ID)
	if err != nil {
		return IdleDecision{}, err
	}
	s := &IdleInput{Machine: m, Services: list, Started: started, Uses: w.Tracker.Uses(m.ID), Unknown: others.unknown}
	if v := decideIdle(s, now, w.After); !v.Others {
		return v, nil
	}
	for _, other := range others.machines {
		if other.ID.Tag() != w.State.Self.Tag {
			s.Others = append(s.Others, other)
		}
	}
	for other, err := range tx.MachinesOf(bourse.App{Name: m.App, ID: m.AppID}) {
		if err != nil {
			return IdleDecision{}, err
		}
		s.Others = append(s.Others, other)
	}
	return decideIdle(s, now, w.After), nil
}

// startedAt returns the time when a running machine was last started or resumed. It returns the zero time if the
// machine's recent events do not include a start.
func startedAt(tx *store.Tx, id bourse.MachineID) (time.Time, error) {
	events, err := state.ReadEvents(tx, id, state.RecentEvents)
	for i := range events {
		if e := &events[i]; e.State == bourse.StateStarted && e.From == bourse.StateStarting { // ignore the event of a failed suspend
			return e.At, err
		}
	}
	return time.Time{}, err
}

// errUsed is returned to prevent a stop if the machine must keep running after all, for example because it is in use
// again.
var errUsed = errors.New("in use")

// stop stops or suspends a machine in the background, unless the machine must keep running after
// all.
func (w *Idle) stop(id bourse.MachineID, act IdleAct, others otherMachines) {
	if !w.busy.begin(id) {
		return
	}
	w.State.Go(func(ctx context.Context) {
		var why string
		check := func(tx *store.Tx, m *bourse.Machine) (string, error) {
			v, err := w.decideInTx(tx, m, others, time.Now())
			if err == nil && v.Act == KeepRunning {
				err = errUsed
			}
			why = v.Why
			return v.Why, err
		}
		err := w.Machines.StopIf(ctx, id, act == Suspend, check)
		if code := bourse.CodeOf(err); act == Suspend && (code == bourse.CodeFailedPrecondition || code == bourse.CodeUnavailable) {
			act = Stop
			err = w.Machines.StopIf(ctx, id, false, check)
		}
		w.busy.end(id)
		switch {
		case err == nil:
			w.State.Log.Info("idle machine stopped", "machine", id, "act", string(act), "why", why)
			return // the change to the machine's record wakes Run
		case !errors.Is(err, errUsed) && bourse.CodeOf(err) != bourse.CodeConflict:
			w.failed(ctx, id, err)
			return // look has already scheduled the next attempt
		}
		w.note(id)
	})
}

// running returns an app's machines on workers that are currently members of the cluster.
func running(ctx context.Context, view StandbyView, app bourse.AppRef) ([]bourse.Machine, error) {
	list, host, err := view.App(ctx, app)
	return slices.DeleteFunc(list, func(m bourse.Machine) bool { return host(m.ID.Tag()) != HostReachable }), err
}
