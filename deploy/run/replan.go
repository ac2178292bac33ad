package run

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
)

// replans limits how often a run plans again because new machines appeared whose leases it did not hold.
const replans = 5

// replan makes the plan again while the run holds the leases of all machines, so that nobody else can change them.
func (r *runner) replan(ctx context.Context) error {
	if r.opts.Replan == nil {
		return nil
	}
	reached := map[bourse.MachineID]bool{} // when the first plan was made
	for id, seen := range r.plan.Seen {
		reached[id] = !seen.Lost
	}
	for range replans {
		for _, one := range r.leases.list() {
			if err := r.settle(ctx, one.machine); err != nil {
				return err
			}
		}
		var p deploy.Plan
		err := r.again(ctx, try{step: Whole, limit: quick}, func(ctx context.Context, _ bool) (err error) {
			p, err = r.opts.Replan(ctx)
			for id, seen := range p.Seen {
				if err == nil && seen.Lost && reached[id] { // otherwise the plan would leave it as it is
					err = bourse.Errorf(bourse.CodeUnavailable, "the worker of machine %s does not answer any more", id)
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
		r.use(&p)
		if r.leases.cover(&p) {
			return nil
		}
		if err := r.leases.takeAll(ctx); err != nil {
			return err
		}
	}
	return bourse.Errorf(bourse.CodeConflict, "new machines of app %s appear faster than they can be leased", r.plan.App)
}

// settle waits until the machine is no longer being updated. Another client may have started an update before this
// run held the machine's lease.
func (r *runner) settle(ctx context.Context, id bourse.MachineID) error {
	limited, cancel := context.WithTimeout(ctx, r.opts.Wait)
	defer cancel()
	told := false
	err := r.news.until(limited, id, func() (bool, error) {
		var m machinesapi.Machine
		err := r.request(limited, id.Tag(), quick, func(ctx context.Context) (err error) {
			m, err = r.api.Machine(ctx, id)
			return err
		})
		if err != nil {
			return true, nil //nolint:nilerr // the machine's steps find out that its worker does not answer
		}
		if m.State != bourse.StateReplacing {
			return true, nil
		}
		if !told {
			told = true
			r.emit(Event{Step: Whole, State: Waiting, Machine: id, Text: "machine " + string(id) + " is being updated by another client"})
		}
		return false, nil
	})
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return bourse.Errorf(bourse.CodeTimeout, "machine %s is still being updated by another client after %s", id, r.opts.Wait.Round(time.Second))
	}
	return err
}

// use replaces the plan with p. No step of the former plan has begun.
func (r *runner) use(p *deploy.Plan) {
	before, _ := json.Marshal(r.plan.Steps) // plans always encode
	after, _ := json.Marshal(p.Steps)
	r.mu.Lock()
	r.plan, r.at, r.watch = p, make([]progress, len(p.Steps)), newWatches(r, p)
	r.mu.Unlock()
	if !bytes.Equal(before, after) {
		r.emit(Event{Step: Whole, State: Running, Plan: p})
	}
}

// cover reports whether the run holds, or has requested, the lease of every machine that plan p needs.
func (l *leases) cover(p *deploy.Plan) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range l.r.machines(p) {
		if l.held[id] == nil {
			return false
		}
	}
	return true
}
