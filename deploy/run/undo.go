package run

import (
	"context"
	"errors"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
)

// undo reverts a run's changes.
type undo struct{ *executor }

// all undoes the steps in reverse order. A step is undone once all steps that depend on it have been undone.
// Therefore, machines are restored as gradually as they were changed.
func (u undo) all() {
	u.leases.refreshAll(u.abandonCtx)
	u.emit(Event{Step: WholeRun, State: Undoing})
	begun := make([]bool, len(u.plan.Steps))
	for i := range begun {
		p := u.journal.get(i)
		// A step that destroys something counts as begun only if its request was sent. Otherwise, it has not destroyed
		// anything, and the steps that precede it can still be undone.
		begun[i] = p.state != "" && (p.sent || !u.plan.Steps[i].Destroys())
	}
	wanted := make([]bool, len(begun))
	for _, i := range u.plan.Undoable(begun) {
		wanted[i] = true
	}
	later := newGraph(u.plan).reverse() // undo the steps in the reverse order of their dependencies
	later.walk(func(i int) bool {
		if u.abandonCtx.Err() != nil {
			return true
		}
		after := later.preceding(i)
		switch {
		case wanted[i]:
			u.one(i, after)
		case begun[i] && deploy.Is[deploy.AwaitProxies](u.plan.Steps[i].Do):
			if changed := u.undone(after); len(changed) > 0 {
				_ = operation{u.executor, i}.awaitProxies(u.abandonCtx, changed) // unresponsive proxies are recorded
			}
		}
		return true
	})
}

// undone returns the machines for which at least one of the given steps has been undone.
func (u undo) undone(steps []int) (out []bourse.MachineID) {
	seen := map[bourse.MachineID]bool{"": true}
	for _, i := range steps {
		if id := u.journal.machine(i); !seen[id] && u.journal.get(i).state == Undone {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out
}

// one undoes a step. after contains the steps that depend on it, which have already been processed.
func (u undo) one(i int, after []int) {
	p := u.journal.get(i)
	if !p.sent || p.unchanged { // the step has changed nothing
		if p.state == Done {
			u.journal.change(i, func(p *progress) { p.state = Undone })
			u.emit(Event{Step: i, State: Undone})
		}
		return
	}
	began := time.Now()
	u.emit(Event{Step: i, State: Undoing})
	err := u.leases.overtaken()
	if err == nil {
		err = u.blocked(i, after)
	}
	if err == nil {
		err = undoStep{operation{u.executor, i}, p}.do()
	}
	took := time.Since(began)
	if err != nil {
		u.journal.change(i, func(p *progress) { p.state, p.undo, p.text = Left, err, bourse.MessageOf(err) })
		u.emit(Event{Step: i, State: Left, Text: bourse.MessageOf(err), Took: took})
		return
	}
	u.journal.change(i, func(p *progress) { p.state = Undone })
	e := Event{Step: i, State: Undone, Took: took}
	if now := u.journal.get(i); now.text != p.text { // undoing the step has set a new text
		e.Text = now.text
	}
	u.emit(e)
}

// blocked returns an error if a step must not be undone because its machine serves in place of a machine that could
// not be restored.
func (u undo) blocked(i int, after []int) error {
	switch u.plan.Steps[i].Do.(type) {
	case deploy.UncordonMachine, deploy.MakeMachine, deploy.StartMachine:
	default:
		return nil
	}
	for _, j := range after {
		do := u.plan.Steps[j].Do
		if (deploy.Is[deploy.CordonMachine](do) || deploy.Is[deploy.StopMachine](do)) && u.journal.get(j).undo != nil {
			return bourse.Errorf(bourse.CodeFailedPrecondition, "it continues to serve, because machine %s could not be restored", u.journal.machine(j))
		}
	}
	return nil
}

// undoStep is a step that is being undone.
type undoStep struct {
	operation
	before progress // progress of the step before it is undone
}

// do undoes the step. If the step concerns a machine that this run created, and the machine no longer exists, there
// is nothing to undo.
func (u undoStep) do() error {
	s := &u.plan.Steps[u.i]
	err := u.revert(s)
	made := s.MadeBy != nil || deploy.Is[deploy.MakeMachine](s.Do)
	if made && (errors.Is(err, errMissing) || bourse.CodeOf(err) == bourse.CodeNotFound) {
		u.leases.destroyed(u.journal.machine(u.i))
		return nil
	}
	return err
}

func (u undoStep) revert(s *deploy.Step) error {
	switch do := s.Do.(type) {
	case deploy.MakeMachine:
		return u.makeMachine(u.machineOrder(s.Region, do))
	case deploy.MakeVolume:
		return u.makeVolume(s.Region, do)
	}
	return u.withLease(u.abandonCtx, true, func(ctx context.Context, m target) error {
		switch do := s.Do.(type) {
		case deploy.UpdateMachine:
			return u.update(ctx, m, do)
		case deploy.CordonMachine:
			return u.setCordoned(ctx, m, false)
		case deploy.UncordonMachine:
			return u.setCordoned(ctx, m, true)
		case deploy.StopMachine:
			if err := u.startMachine(ctx, m); err != nil {
				return err
			}
			return u.awaitReady(ctx, m.id, u.opts.Wait, false)
		case deploy.StartMachine:
			if s.MadeBy == nil {
				return u.stopMachine(ctx, m)
			}
			now, err := u.readMachine(ctx, m.id)
			if err != nil {
				return err
			}
			return u.retire(ctx, *s.MadeBy, &now, m)
		case deploy.SetMetadata:
			return u.setMetadata(ctx, m, do.Former)
		}
		return nil // the step cannot be undone
	})
}

// update restores a machine's former config, unless the machine still has it.
func (u undoStep) update(ctx context.Context, m target, do deploy.UpdateMachine) error {
	if do.Former == nil {
		return bourse.Errorf(bourse.CodeInvalid, "the plan does not contain its former config")
	}
	now, err := u.readMachine(ctx, m.id)
	if err != nil {
		return err
	}
	if now.InstanceID == u.before.instance && !u.before.unknown {
		return nil // the update had no effect
	}
	// If the answer to the update was lost, create a new version even if the machine still has the former config, so
	// that the lost update can no longer take effect.
	in := machinesapi.UpdateMachine{Config: do.Former, SkipLaunch: do.Stopped}
	err = u.newVersion(ctx, m, now.InstanceID, !u.before.unknown, in)
	for tries := 0; bourse.CodeOf(err) == bourse.CodeConflict && tries < 3; tries++ { // the lost update has taken effect in the meantime
		if now, err = u.readMachine(ctx, m.id); err == nil {
			err = u.newVersion(ctx, m, now.InstanceID, true, in)
		}
	}
	if err != nil || do.Stopped {
		return err
	}
	if err := u.awaitReady(ctx, m.id, u.opts.Wait, false); err != nil {
		// This does not fail the undo, because the machine may not have been ready before the update either.
		text := "its former version is restored, but not ready: " + bourse.MessageOf(err)
		u.journal.change(u.i, func(p *progress) { p.text = text })
	}
	return nil
}

// makeMachine undoes the creation of a machine by destroying the machine. If the answer to the order was lost, it
// repeats the order to find the machine.
func (u undoStep) makeMachine(order machinesapi.CreateMachine) error {
	if u.before.machine == "" {
		if !u.before.unknown {
			return nil
		}
		if _, err := u.create(u.abandonCtx, order); err != nil {
			if u.journal.get(u.i).unknown {
				return err
			}
			return nil // the order was refused, so there is no machine
		}
	}
	return u.withLease(u.abandonCtx, true, func(ctx context.Context, m target) error {
		now, err := u.readMachine(ctx, m.id)
		if now.State == bourse.StateDestroyed {
			return errGone(m.id)
		}
		if err == nil && now.State == bourse.StateStarted {
			err = u.retire(ctx, u.i, &now, m)
		}
		if err != nil && bourse.CodeOf(err) != bourse.CodeTimeout {
			return err
		}
		return u.destroyMachine(ctx, m)
	})
}

// retire cordons and stops a machine that the run created in step madeBy. If the machine may have served requests,
// retire waits until proxies know that it is cordoned before it stops the machine.
func (u undoStep) retire(ctx context.Context, madeBy int, now *machinesapi.Machine, m target) error {
	if !now.Cordoned {
		if err := u.setCordoned(ctx, m, true); err != nil {
			return err
		}
	}
	makes, _ := u.plan.Steps[madeBy].Do.(deploy.MakeMachine)
	served := !makes.Cordoned
	for j := range u.plan.Steps {
		s := &u.plan.Steps[j]
		served = served || deploy.Is[deploy.UncordonMachine](s.Do) && s.MadeBy != nil && *s.MadeBy == madeBy && u.journal.get(j).sent
	}
	if served {
		if err := u.awaitProxies(ctx, []bourse.MachineID{m.id}); err != nil {
			return err
		}
	}
	return u.stopMachine(ctx, m)
}

func (u undoStep) makeVolume(region bourse.Region, do deploy.MakeVolume) error {
	if u.before.volume == "" && u.before.unknown {
		if err := u.createVolume(u.abandonCtx, region, do); err != nil {
			if u.journal.get(u.i).unknown {
				return err
			}
			return nil // the order was refused, so there is no volume
		}
	}
	if id := u.journal.get(u.i).volume; id != "" {
		return u.destroyVolume(u.abandonCtx, id)
	}
	return nil
}
