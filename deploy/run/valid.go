package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
)

// The functions in this file check that a plan still applies, because other clients may
// have changed the machines after the plan was made.

// machines returns the sorted IDs of the machines whose leases a plan requires: the machines that it changes. If the
// run can replan, they also include all machines that the plan is based on, so that no other client changes one of
// them in the meantime.
func (x *executor) machines(p *deploy.Plan) []bourse.MachineID {
	out := map[bourse.MachineID]bool{}
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Machine != "" && s.Changes() {
			out[s.Machine] = true
		}
	}
	if x.opts.Replan != nil {
		for id, seen := range p.Seen {
			if !seen.Lost {
				out[id] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// takeLeases acquires the leases that the current plan requires.
func (x *executor) takeLeases(ctx context.Context) error {
	waited, err := x.leases.take(ctx, x.machines(x.plan), func(id bourse.MachineID) int {
		if x.opts.Replan != nil {
			return WholeRun // not a step, because replanning may change the steps
		}
		return slices.IndexFunc(x.plan.Steps, func(s deploy.Step) bool { return s.Machine == id && s.Changes() })
	})
	if err == nil && waited && x.opts.Replan == nil {
		return x.checkSeen(ctx)
	}
	return err
}

// checkSeen returns CodeConflict if a machine has changed since the plan was made. This can happen if another client
// held the machine's lease in the meantime.
func (x *executor) checkSeen(ctx context.Context) error {
	for id, seen := range x.plan.Seen {
		if seen.Lost {
			continue
		}
		m, err := x.leases.read(ctx, id)
		known := m.Known()
		paused := known != nil && known.Metadata[deploy.KeyPaused] != ""
		switch {
		case bourse.CodeOf(err) == bourse.CodeUnavailable: // the machine's own steps handle this
		case bourse.CodeOf(err) == bourse.CodeNotFound:
			return errGone(id)
		case err != nil:
			return err
		case m.InstanceID != seen.Instance:
			return errChanged(id, seen.Instance, m.InstanceID)
		case m.Cordoned != seen.Cordoned || paused != seen.Paused || m.State == bourse.StateDestroyed || m.State == bourse.StateDestroying:
			return bourse.Errorf(bourse.CodeConflict, "machine %s was changed after the plan was made: it is %s, cordoned: %v, paused: %v; try again", id, m.State, m.Cordoned, paused)
		}
	}
	return nil
}

// checkVersion returns an error if a machine whose lease was just acquired has an unexpected version. again is set if
// the run held the lease before and lost it. In that case, the version must be one that this run found or created. If
// it is not, another client has taken over.
func (x *executor) checkVersion(id bourse.MachineID, now bourse.InstanceID, again bool) error {
	if now == "" || x.opts.Replan != nil && !again {
		return nil
	}
	planned := []bourse.InstanceID{x.plan.Seen[id].Instance}
	ours := []bourse.InstanceID{x.journal.version(id).instance}
	unknown := false
	for i := range x.plan.Steps {
		if s := &x.plan.Steps[i]; x.journal.machine(i) == id {
			if update, ok := s.Do.(deploy.UpdateMachine); ok {
				planned = append(planned, update.Instance)
			}
			p := x.journal.get(i)
			ours, unknown = append(ours, p.instance), unknown || p.unknown
		}
	}
	other := func(v bourse.InstanceID) bool { return v != "" && v != now }
	if !again {
		if i := slices.IndexFunc(planned, other); i >= 0 {
			return errChanged(id, planned[i], now)
		}
		return nil
	}
	known := append(planned, ours...)
	if unknown || slices.Contains(known, now) || !slices.ContainsFunc(known, other) {
		return nil
	}
	x.leases.mu.Lock()
	defer x.leases.mu.Unlock()
	return x.leases.overtake(id, bourse.Errorf(bourse.CodeConflict, "this run did not create its version %s", now))
}

// checkMissing is called if a machine does not exist. It returns an error if the run needs the machine. A plan that
// destroys the machine does not need it, because an earlier plan may already have destroyed it. A run with
// Options.Replan does not need it either, because such a run makes a new plan once it holds the leases.
func (x *executor) checkMissing(id bourse.MachineID) error {
	if x.opts.Replan == nil && !x.destroys(id) {
		return errGone(id)
	}
	return nil
}

// destroys reports whether the plan destroys a machine.
func (x *executor) destroys(id bourse.MachineID) bool {
	for i := range x.plan.Steps {
		if deploy.Is[deploy.DestroyMachine](x.plan.Steps[i].Do) && x.journal.machine(i) == id {
			return true
		}
	}
	return false
}

// errMissing is in the error chain if a machine no longer exists.
var errMissing = errors.New("a machine is missing")

func errGone(id bourse.MachineID) error {
	return &bourse.Error{Code: bourse.CodeConflict, Message: "machine " + string(id) + " no longer exists", Err: errMissing}
}

func errChanged(id bourse.MachineID, planned, now bourse.InstanceID) error {
	return bourse.Errorf(bourse.CodeConflict, "machine %s was changed after the plan was made: its version is %s, not %s; try again", id, now, planned)
}

// replans is the maximum number of times that a run replans. A run replans again if the new plan requires leases that
// the run does not hold yet, for example because a machine was added.
const replans = 5

// replan makes a new plan while the run holds the leases of all machines, so that no other client can change them.
func (x *executor) replan(ctx context.Context) error {
	if x.opts.Replan == nil {
		return nil
	}
	reached := map[bourse.MachineID]bool{} // machines whose workers answered when the first plan was made
	for id, seen := range x.plan.Seen {
		reached[id] = !seen.Lost
	}
	for range replans {
		for _, one := range x.leases.list() {
			if err := x.settle(ctx, one.machine); err != nil {
				return err
			}
		}
		var p deploy.Plan
		err := x.requests.repeat(ctx, repeatableRequest{step: WholeRun, limit: requestTimeout}, func(ctx context.Context, _ bool) (err error) {
			p, err = x.opts.Replan(ctx)
			for id, seen := range p.Seen {
				if err == nil && seen.Lost && reached[id] { // such a plan would leave the machine unchanged
					err = bourse.Errorf(bourse.CodeUnavailable, "the worker of machine %s no longer answers", id)
				}
			}
			return err
		})
		if err != nil {
			return err
		}
		if err := canRun(&p); err != nil {
			return err
		}
		x.use(&p)
		if x.leases.covers(x.machines(&p)) {
			return nil
		}
		if err := x.takeLeases(ctx); err != nil {
			return err
		}
	}
	return bourse.Errorf(bourse.CodeConflict, "new machines of app %s appear faster than they can be leased", x.plan.App)
}

// settle waits until no update of a machine is in progress. Another client may have started an update before this run
// acquired the machine's lease.
func (x *executor) settle(ctx context.Context, id bourse.MachineID) error {
	limited, cancel := context.WithTimeout(ctx, x.opts.Wait)
	defer cancel()
	told := false
	err := x.news.poll(limited, id, func() (bool, error) {
		var m machinesapi.Machine
		m, err := x.leases.read(limited, id)
		if err != nil || m.State != bourse.StateReplacing {
			return true, nil //nolint:nilerr // the machine's steps detect an unresponsive worker
		}
		if !told {
			told = true
			x.emit(Event{Step: WholeRun, State: Waiting, Machine: id, Text: "machine " + string(id) + " is being updated by another client"})
		}
		return false, nil
	})
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return bourse.Errorf(bourse.CodeTimeout, "machine %s is still being updated by another client after %s", id, x.opts.Wait.Round(time.Second))
	}
	return err
}

// use replaces the plan. It must be called before the first step begins.
func (x *executor) use(p *deploy.Plan) {
	before, _ := json.Marshal(x.plan.Steps) // steps can always be marshaled
	after, _ := json.Marshal(p.Steps)
	x.plan = p
	x.journal.use(p)
	if !bytes.Equal(before, after) {
		x.emit(Event{Step: WholeRun, State: Running, Plan: p})
	}
}
