package run

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
)

// step does what a step says.
func (r *runner) step(ctx context.Context, i int) error {
	s := &r.plan.Steps[i]
	switch s.Do {
	case deploy.RunCommand:
		return r.runCommand(ctx, i)
	case deploy.MakeVolume:
		return r.makeVolume(ctx, i)
	case deploy.MakeMachine:
		return r.makeMachine(ctx, i)
	case deploy.AwaitReady:
		return r.awaitReady(ctx, i, r.machineOf(i), r.waitOf(s), s.Smoke)
	case deploy.AwaitProxies:
		return r.awaitProxies(ctx, i, r.changedBefore(i))
	case deploy.DestroyVolume:
		return r.destroyVolume(ctx, i, r.volumeOf(s))
	case deploy.UpdateMachine:
		return r.leased(ctx, i, false, func(ctx context.Context, id bourse.MachineID, nonce string) error {
			return r.updateMachine(ctx, i, id, nonce)
		})
	case deploy.RestartMachine:
		return r.leased(ctx, i, false, func(ctx context.Context, id bourse.MachineID, nonce string) error {
			return r.restartMachine(ctx, i, id, nonce)
		})
	case deploy.UncordonMachine, deploy.CordonMachine:
		return r.leased(ctx, i, false, func(ctx context.Context, id bourse.MachineID, nonce string) error {
			return r.unlessWas(i)(r.cordonMachine(ctx, i, id, s.Do == deploy.CordonMachine, nonce))
		})
	case deploy.StopMachine:
		return r.leased(ctx, i, false, func(ctx context.Context, id bourse.MachineID, nonce string) error {
			return r.unlessWas(i)(r.stopMachine(ctx, i, id, nonce))
		})
	case deploy.StartMachine:
		return r.leased(ctx, i, false, func(ctx context.Context, id bourse.MachineID, nonce string) error {
			return r.unlessWas(i)(r.startMachine(ctx, i, id, nonce))
		})
	case deploy.SetMetadata:
		return r.leased(ctx, i, false, func(ctx context.Context, id bourse.MachineID, _ string) error {
			return r.setMetadata(ctx, i, id, s.Config.Metadata)
		})
	case deploy.DestroyMachine:
		return r.leased(ctx, i, false, func(ctx context.Context, id bourse.MachineID, nonce string) error {
			return r.destroyMachine(ctx, i, id, nonce)
		})
	}
	return bourse.Errorf(bourse.CodeInvalid, "no such act: %s", s.Do) // a sound plan has none
}

// unlessWas notes that a step found its machine as it was to make it.
func (r *runner) unlessWas(i int) func(was bool, err error) error {
	return func(was bool, err error) error {
		r.with(i, func(p *progress) { p.was = was })
		return err
	}
}

// leased does something to a step's machine while its lease is held.
func (r *runner) leased(ctx context.Context, i int, again bool, do func(ctx context.Context, id bourse.MachineID, nonce string) error) error {
	id := r.machineOf(i)
	in, nonce, leave, err := r.leases.enter(ctx, i, id, again)
	if err != nil {
		return err
	}
	defer leave()
	switch left := r.leases.left(id); {
	case left && !r.goes(id):
		return errGone(id)
	case left && r.plan.Steps[i].Do != deploy.DestroyMachine: // that waits until it is gone
		r.with(i, func(p *progress) { p.was = true })
		return nil
	}
	err = do(in, id, nonce)
	if err != nil && ctx.Err() == nil && in.Err() != nil {
		return context.Cause(in) // whatever it cut short
	}
	return err
}

// waitOf is how long a step waits for its machine.
func (r *runner) waitOf(s *deploy.Step) time.Duration {
	return cmp.Or(time.Duration(s.Wait), r.opts.Wait)
}

func (r *runner) volumeOf(s *deploy.Step) bourse.VolumeID {
	if s.VolumeID == "" && s.VolumeOf != nil {
		return r.get(*s.VolumeOf).volume
	}
	return s.VolumeID
}

// acted notes that a request that changes something is about to be sent.
func (r *runner) acted(i int) { r.with(i, func(p *progress) { p.sent = true }) }

// outcome records whether the outcome of a step's request is known. An error does not make an unknown
// outcome known: the request that got no answer may still be in progress when a later one is refused.
func (r *runner) outcome(i int, err error) {
	r.with(i, func(p *progress) {
		switch bourse.CodeOf(err) {
		case bourse.CodeTimeout, bourse.CodeCanceled:
			p.unknown = true
		case "":
			p.unknown = false
		default: // it stays as it was
		}
	})
}

// orderOutcome is outcome for a request with an order ID: a refusal is final, because the order is
// either filled or refused, however often it is sent.
func (r *runner) orderOutcome(i int, err error) {
	switch bourse.CodeOf(err) {
	case bourse.CodeTimeout, bourse.CodeCanceled, bourse.CodeUnavailable, bourse.CodeRateLimited:
		r.outcome(i, err)
	default:
		r.outcome(i, nil)
	}
}

// look reads a machine.
func (r *runner) look(ctx context.Context, i int, id bourse.MachineID) (m machinesapi.Machine, err error) {
	err = r.again(ctx, try{step: i, machine: id, limit: quick}, func(ctx context.Context, _ bool) error {
		m, err = r.api.Machine(ctx, id)
		return err
	})
	return m, err
}

func (r *runner) noteMade(m *machinesapi.Machine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.versions[m.ID] = made{m.InstanceID, m.Starts}
}

func (r *runner) madeOf(id bourse.MachineID) made {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.versions[id]
}

// updateMachine makes the machine's next version. Nobody else can make one while the lease is held.
func (r *runner) updateMachine(ctx context.Context, i int, id bourse.MachineID, nonce string) error {
	s := &r.plan.Steps[i]
	config := *s.Config
	if err := r.fill(s, &config); err != nil {
		return err
	}
	before := s.Instance
	if before == "" {
		m, err := r.look(ctx, i, id)
		if err != nil {
			return err
		}
		before = m.InstanceID
	}
	r.with(i, func(p *progress) { p.instance = before })
	return r.newVersion(ctx, i, id, nonce, before, true, machinesapi.UpdateMachine{Config: &config, SkipLaunch: s.Stopped})
}

// newVersion updates a machine whose version is before. When an answer is lost, the request is repeated; at
// most one of these requests can take effect, since each requires that version. The parameter only reports
// that no other request of this run can have made the version that a repeated request finds.
func (r *runner) newVersion(
	ctx context.Context, i int, id bourse.MachineID, nonce string, before bourse.InstanceID, only bool, in machinesapi.UpdateMachine,
) error {
	in.CurrentVersion = before
	return r.again(ctx, try{step: i, machine: id, limit: r.waitOf(&r.plan.Steps[i]) + quick}, func(ctx context.Context, unknown bool) error {
		if err := r.leases.acts(ctx, i, id); err != nil {
			return err
		}
		m, err := r.api.Update(ctx, id, in, nonce)
		r.outcome(i, err)
		switch bourse.CodeOf(err) {
		case "":
			r.noteMade(&m)
			return nil
		case bourse.CodeConflict, bourse.CodeFailedPrecondition:
		default:
			return err
		}
		// An earlier request that got no answer may still be in progress, and may be the reason for this refusal.
		m, unread := r.api.Machine(ctx, id)
		switch conflict := bourse.CodeOf(err) == bourse.CodeConflict; {
		case unread != nil:
			return unread
		case m.State == bourse.StateReplacing, unknown && !m.State.Settled() && m.State != bourse.StateRestarting:
			return busy(id)
		case m.InstanceID == before && conflict: // an update waits for its image; or the lease is lost, which is found out when it is extended
			return busy(id)
		case m.InstanceID == before, !unknown && !conflict:
			return err
		case !unknown, !only, m.Config == nil, m.Config.Metadata[deploy.KeyRelease] != in.Config.Metadata[deploy.KeyRelease]:
			return errChanged(id, before, m.InstanceID)
		}
		r.outcome(i, nil)
		if m.State == bourse.StateFailed {
			return bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s has version %s now, which failed to start", id, m.InstanceID)
		}
		r.noteMade(&m)
		return nil
	})
}

// fill puts into a config what steps before its own have made.
func (r *runner) fill(s *deploy.Step, config *bourse.Config) error {
	if s.VolumeOf != nil {
		if len(config.Mounts) == 0 {
			return bourse.Errorf(bourse.CodeInvalid, "the plan has a volume for a machine without mounts")
		}
		config.Mounts = append([]bourse.Mount{}, config.Mounts...)
		config.Mounts[0].Volume = r.get(*s.VolumeOf).volume
	}
	if s.StandbyOf != nil {
		if id := r.get(*s.StandbyOf).machine; !slices.Contains(config.Standbys, id) {
			config.Standbys = append(slices.Clone(config.Standbys), id)
		}
	}
	return nil
}

func (r *runner) restartMachine(ctx context.Context, i int, id bourse.MachineID, nonce string) error {
	before, err := r.look(ctx, i, id)
	if err != nil {
		return err
	}
	return r.again(ctx, try{step: i, machine: id, limit: r.waitOf(&r.plan.Steps[i]) + quick}, func(ctx context.Context, unknown bool) error {
		if unknown {
			m, err := r.api.Machine(ctx, id)
			if err != nil {
				return err
			}
			if m.Starts > before.Starts && m.State == bourse.StateStarted {
				r.noteMade(&m)
				return nil
			}
		}
		if err := r.leases.acts(ctx, i, id); err != nil {
			return err
		}
		err := r.api.Restart(ctx, id, nonce)
		r.outcome(i, err)
		return err
	})
}

// simple makes a request that may be repeated without finding out what became of the one before.
func (r *runner) simple(ctx context.Context, i int, id bourse.MachineID, do func(context.Context) error) error {
	return r.again(ctx, try{step: i, machine: id, limit: quick}, func(ctx context.Context, _ bool) error {
		if err := r.leases.acts(ctx, i, id); err != nil {
			return err
		}
		err := do(ctx)
		r.outcome(i, err)
		return err
	})
}

// cordonMachine takes a machine's services out of routing, or puts them back, and
// reports whether they were.
func (r *runner) cordonMachine(ctx context.Context, i int, id bourse.MachineID, cordoned bool, nonce string) (was bool, err error) {
	m, err := r.look(ctx, i, id)
	if err != nil || m.Cordoned == cordoned {
		return err == nil, err
	}
	return false, r.simple(ctx, i, id, func(ctx context.Context) error { return r.api.Cordon(ctx, id, cordoned, nonce) })
}

// stopMachine stops a machine and waits until it has ended, and reports whether it had before.
func (r *runner) stopMachine(ctx context.Context, i int, id bourse.MachineID, nonce string) (was bool, err error) {
	m, err := r.look(ctx, i, id)
	if err != nil || m.State == bourse.StateStopped || m.State == bourse.StateFailed {
		return err == nil, err
	}
	if err := r.simple(ctx, i, id, func(ctx context.Context) error { return r.api.Stop(ctx, id, nonce) }); err != nil {
		return false, err
	}
	return false, r.awaitState(ctx, i, id, r.waitOf(&r.plan.Steps[i]), bourse.StateStopped, bourse.StateFailed)
}

// startMachine starts a machine and waits until it has started, and reports whether it had before.
func (r *runner) startMachine(ctx context.Context, i int, id bourse.MachineID, nonce string) (was bool, err error) {
	m, err := r.look(ctx, i, id)
	if err != nil {
		return false, err
	}
	if was = m.State == bourse.StateStarted; !was {
		if m.State == bourse.StateStopping || m.State == bourse.StateSuspending { // as a client that was killed has asked: then it is not started
			err := r.awaitState(ctx, i, id, r.waitOf(&r.plan.Steps[i]), bourse.StateStopped, bourse.StateSuspended, bourse.StateFailed, bourse.StateDestroyed)
			if err != nil {
				return false, err
			}
		}
		if err := r.simple(ctx, i, id, func(ctx context.Context) error { return r.api.Start(ctx, id, nonce) }); err != nil {
			return false, err
		}
		if err := r.awaitState(ctx, i, id, r.waitOf(&r.plan.Steps[i]), bourse.StateStarted); err != nil {
			return false, err
		}
		if m, err = r.look(ctx, i, id); err != nil {
			return false, err
		}
	}
	r.noteMade(&m)
	return was, nil
}

// awaitState waits until a machine is in one of the states.
func (r *runner) awaitState(ctx context.Context, i int, id bourse.MachineID, most time.Duration, states ...bourse.State) error {
	want := machinesapi.WaitMachine{Timeout: bourse.Duration(min(most, 30*time.Second))}
	for _, s := range states {
		want.States = append(want.States, string(s))
	}
	end := time.Now().Add(most)
	var silent time.Time
	for {
		limited, cancel := context.WithTimeout(ctx, time.Duration(want.Timeout)+quick)
		_, err := r.api.Wait(limited, id, want)
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch bourse.CodeOf(err) {
		case "":
			return nil
		case bourse.CodeTimeout:
			silent = time.Time{}
		case bourse.CodeUnavailable, bourse.CodeRateLimited:
			if silent.IsZero() {
				silent = time.Now()
				r.emit(Event{Step: i, State: Waiting, Machine: id, Text: "asked again: " + bourse.MessageOf(err)})
			}
			if time.Since(silent) > r.opts.Silence {
				return err
			}
			if err := rest(ctx, lookWithoutNews); err != nil {
				return err
			}
		default:
			return err
		}
		if time.Now().After(end) {
			return because("not "+want.States[0]+" after "+most.String(), err)
		}
	}
}

// setMetadata sets what the members say; an empty value removes.
func (r *runner) setMetadata(ctx context.Context, i int, id bourse.MachineID, members map[string]string) error {
	in := machinesapi.MetadataPatch{Metadata: map[string]*string{}}
	for k, v := range members {
		if in.Metadata[k] = nil; v != "" {
			in.Metadata[k] = &v
		}
	}
	return r.simple(ctx, i, id, func(ctx context.Context) error { return r.api.SetMetadata(ctx, id, in) })
}

// destroyMachine destroys a machine, or finds that it is gone.
func (r *runner) destroyMachine(ctx context.Context, i int, id bourse.MachineID, nonce string) error {
	err := r.again(ctx, try{step: i, machine: id, limit: r.waitOf(&r.plan.Steps[i]) + quick}, func(ctx context.Context, _ bool) error {
		if err := r.leases.acts(ctx, i, id); err != nil {
			return err
		}
		err := r.api.Destroy(ctx, id, nonce)
		r.outcome(i, err)
		return err
	})
	if err == nil || bourse.CodeOf(err) == bourse.CodeNotFound {
		r.leases.forget(id)
		return nil
	}
	return err
}

func (r *runner) destroyVolume(ctx context.Context, i int, id bourse.VolumeID) error {
	err := r.again(ctx, try{step: i, limit: quick}, func(ctx context.Context, _ bool) error {
		r.acted(i)
		err := r.api.DestroyVolume(ctx, id)
		r.outcome(i, err)
		return err
	})
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return nil
	}
	return err
}
