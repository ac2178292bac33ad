package run

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
)

// undoer returns what was done to what it was.
type undoer struct {
	*runner
	after [][]int // by step: those that come after it at once
}

// undo undoes steps in reverse: each once all that came after it are undone, so that machines
// return as gently as they were changed.
func (r *runner) undo() {
	after := make([][]int, len(r.at))
	for i := range r.plan.Steps {
		for _, before := range r.plan.Steps[i].After {
			after[before] = append(after[before], i)
		}
	}
	undoer{r, after}.all()
}

func (r undoer) all() {
	r.leases.allFresh(r.hard)
	r.emit(Event{Step: Whole, State: Undoing})
	begun := make([]bool, len(r.at))
	for i := range r.at {
		p := r.get(i)
		// A machine is only gone if the request to destroy it was sent: a step that was interrupted before that
		// does not keep the others from being undone.
		begun[i] = p.state != "" && (p.sent || !destroys(&r.plan.Steps[i]))
	}
	wanted := make([]bool, len(r.at))
	for _, i := range r.plan.Undoable(begun) {
		wanted[i] = true
	}
	walk(r.after, func(i int) bool {
		if r.hard.Err() != nil {
			return true
		}
		switch {
		case wanted[i]:
			r.undoOne(i)
		case begun[i] && r.plan.Steps[i].Do == deploy.AwaitProxies && r.undoneAfter(i):
			_ = r.awaitProxies(r.hard, i, r.changedAfter(i)) // what is lacking is noted
		}
		return true
	})
}

// destroys reports whether a step removes a machine or a volume for good.
func destroys(s *deploy.Step) bool {
	return s.Do == deploy.DestroyMachine || s.Do == deploy.DestroyVolume
}

// undoOne undoes one step.
func (r undoer) undoOne(i int) {
	p := r.get(i)
	if !p.sent || p.was { // it changed nothing
		if p.state == Done {
			r.with(i, func(p *progress) { p.state = Undone })
			r.emit(Event{Step: i, State: Undone})
		}
		return
	}
	began := time.Now()
	r.emit(Event{Step: i, State: Undoing})
	err := r.leases.overtaken()
	if err == nil {
		err = r.blocked(i)
	}
	if err == nil {
		err = r.undoStep(i, &p)
	}
	took := time.Since(began)
	if err != nil {
		r.with(i, func(p *progress) { p.state, p.undo, p.text = Left, err, bourse.MessageOf(err) })
		r.emit(Event{Step: i, State: Left, Text: bourse.MessageOf(err), Took: took})
		return
	}
	r.with(i, func(p *progress) { p.state = Undone })
	r.emit(Event{Step: i, State: Undone, Took: took, Text: r.get(i).text})
}

// serves reports whether to undo a step may take away what serves.
func serves(do deploy.Act) bool {
	return do == deploy.UncordonMachine || do == deploy.MakeMachine || do == deploy.StartMachine
}

// blocked returns why a step is not undone: a machine that it stands in for could not be brought back.
func (r undoer) blocked(i int) error {
	if !serves(r.plan.Steps[i].Do) {
		return nil
	}
	var found error
	r.eachAfter(i, func(j int) {
		if do := r.plan.Steps[j].Do; found == nil && (do == deploy.CordonMachine || do == deploy.StopMachine) && r.get(j).undo != nil {
			found = bourse.Errorf(bourse.CodeFailedPrecondition, "it goes on serving: machine %s could not be brought back", r.machineOf(j))
		}
	})
	return found
}

// eachAfter calls f for every step that is after another, however far.
func (r undoer) eachAfter(i int, f func(int)) {
	seen := make([]bool, len(r.after))
	var visit func(int)
	visit = func(j int) {
		for _, next := range r.after[j] {
			if !seen[next] {
				seen[next] = true
				f(next)
				visit(next)
			}
		}
	}
	visit(i)
}

// undoneAfter reports whether anything after a step was undone.
func (r undoer) undoneAfter(i int) (found bool) {
	r.eachAfter(i, func(j int) { found = found || r.get(j).state == Undone })
	return found
}

// changedAfter returns the machines that steps after this one were about.
func (r undoer) changedAfter(i int) []bourse.MachineID {
	seen := map[bourse.MachineID]bool{}
	var out []bourse.MachineID
	r.eachAfter(i, func(j int) {
		if id := r.machineOf(j); id != "" && !seen[id] && r.get(j).state == Undone {
			seen[id] = true
			out = append(out, id)
		}
	})
	return out
}

// undoStep undoes a step that may have done something.
func (r undoer) undoStep(i int, p *progress) error {
	s := &r.plan.Steps[i]
	switch s.Do {
	case deploy.MakeMachine:
		return r.unmake(i, p)
	case deploy.MakeVolume:
		return r.unmakeVolume(i, p)
	default:
	}
	return r.leased(r.hard, i, true, func(ctx context.Context, id bourse.MachineID, nonce string) error {
		switch s.Do {
		case deploy.UpdateMachine:
			return r.revert(ctx, i, id, nonce, p)
		case deploy.CordonMachine:
			return r.simple(ctx, i, id, func(ctx context.Context) error { return r.api.Cordon(ctx, id, false, nonce) })
		case deploy.UncordonMachine:
			return r.simple(ctx, i, id, func(ctx context.Context) error { return r.api.Cordon(ctx, id, true, nonce) })
		case deploy.StopMachine:
			if _, err := r.startMachine(ctx, i, id, nonce); err != nil {
				return err
			}
			return r.awaitReady(ctx, i, id, r.waitOf(s), false)
		case deploy.StartMachine:
			if s.Of == nil {
				_, err := r.stopMachine(ctx, i, id, nonce)
				return err
			}
			m, err := r.look(ctx, i, id)
			if err != nil {
				return err
			}
			return r.retire(ctx, i, *s.Of, &m, nonce)
		case deploy.SetMetadata:
			return r.setMetadata(ctx, i, id, formerMetadata(s))
		default:
			return nil // nothing undoes it
		}
	})
}

// formerMetadata is what a step's members were before it.
func formerMetadata(s *deploy.Step) map[string]string {
	out := map[string]string{}
	for k := range s.Config.Metadata {
		if out[k] = ""; s.Former != nil {
			out[k] = s.Former.Metadata[k]
		}
	}
	return out
}

// revert gives a machine its former config, if it has another.
func (r undoer) revert(ctx context.Context, i int, id bourse.MachineID, nonce string, p *progress) error {
	s := &r.plan.Steps[i]
	if s.Former == nil {
		return bourse.Errorf(bourse.CodeInvalid, "the plan does not have its former config")
	}
	m, err := r.look(ctx, i, id)
	if err != nil {
		return err
	}
	if m.InstanceID == p.instance && !p.unknown {
		return nil // the update was refused
	}
	// If the answer to the update was lost, the former config becomes a new version even if the machine still has it:
	// after that the lost update can no longer take effect.
	in := machinesapi.UpdateMachine{Config: s.Former, SkipLaunch: s.Stopped}
	err = r.newVersion(ctx, i, id, nonce, m.InstanceID, !p.unknown, in)
	for tries := 0; bourse.CodeOf(err) == bourse.CodeConflict && tries < 3; tries++ { // the update has taken effect in the meantime
		if m, err = r.look(ctx, i, id); err == nil {
			err = r.newVersion(ctx, i, id, nonce, m.InstanceID, true, in)
		}
	}
	if err != nil || s.Stopped {
		return err
	}
	if err := r.awaitReady(ctx, i, id, r.waitOf(s), false); err != nil { // so it may have been before
		r.with(i, func(p *progress) { p.text = "its former version is back, and is not ready: " + bourse.MessageOf(err) })
	}
	return nil
}

// unmake destroys a machine that a step has made. When the answer to its order was
// lost, the order is placed again: that finds the machine.
func (r undoer) unmake(i int, p *progress) error {
	ctx := r.hard
	if p.machine == "" {
		if !p.unknown {
			return nil
		}
		in, err := r.order(i)
		if err != nil {
			return err
		}
		if _, err := r.create(ctx, i, in); err != nil {
			if r.get(i).unknown {
				return err
			}
			return nil // it was refused: there is none
		}
	}
	return r.leased(ctx, i, true, func(ctx context.Context, id bourse.MachineID, nonce string) error {
		m, err := r.look(ctx, i, id)
		if bourse.CodeOf(err) == bourse.CodeNotFound || m.State == bourse.StateDestroyed {
			r.leases.forget(id)
			return nil
		}
		if err == nil && m.State == bourse.StateStarted {
			err = r.retire(ctx, i, i, &m, nonce)
		}
		if err != nil && bourse.CodeOf(err) != bourse.CodeTimeout {
			return err
		}
		return r.destroyMachine(ctx, i, id, nonce)
	})
}

// retire stops a machine that step of has made and that may be serving, so that what is in progress there may end.
func (r undoer) retire(ctx context.Context, i, of int, m *machinesapi.Machine, nonce string) error {
	if !m.Cordoned {
		if err := r.simple(ctx, i, m.ID, func(ctx context.Context) error { return r.api.Cordon(ctx, m.ID, true, nonce) }); err != nil {
			return err
		}
	}
	served := !r.plan.Steps[of].Hidden
	for j := range r.plan.Steps {
		s := &r.plan.Steps[j]
		served = served || s.Do == deploy.UncordonMachine && s.Of != nil && *s.Of == of && r.get(j).sent
	}
	if served {
		if err := r.awaitProxies(ctx, i, []bourse.MachineID{m.ID}); err != nil {
			return err
		}
	}
	_, err := r.stopMachine(ctx, i, m.ID, nonce)
	return err
}

func (r undoer) unmakeVolume(i int, p *progress) error {
	if p.volume == "" && p.unknown {
		if err := r.createVolume(r.hard, i); err != nil {
			if r.get(i).unknown {
				return err
			}
			return nil // it was refused: there is none
		}
	}
	if id := r.get(i).volume; id != "" {
		return r.destroyVolume(r.hard, i, id)
	}
	return nil
}
