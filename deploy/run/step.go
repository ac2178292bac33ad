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

// operation executes or undoes a step.
type operation struct {
	*executor
	i int
}

// target is the machine that an operation changes. The run holds the machine's lease.
type target struct {
	id    bourse.MachineID
	nonce string // nonce of the lease
}

// do executes the step.
func (o operation) do(ctx context.Context) error {
	s := &o.plan.Steps[o.i]
	switch do := s.Do.(type) {
	case deploy.RunCommand:
		return o.runCommand(ctx, do)
	case deploy.MakeVolume:
		return o.makeVolume(ctx, s.Region, do)
	case deploy.MakeMachine:
		_, err := o.create(ctx, o.machineOrder(s.Region, do))
		return err
	case deploy.AwaitReady:
		return o.awaitReady(ctx, o.journal.machine(o.i), cmp.Or(time.Duration(do.Timeout), o.opts.Wait), do.Smoke)
	case deploy.AwaitProxies:
		return o.awaitProxies(ctx, o.changedBefore())
	case deploy.DestroyVolume:
		return o.destroyVolume(ctx, do.Volume)
	}
	return o.withLease(ctx, false, func(ctx context.Context, m target) error {
		switch do := s.Do.(type) {
		case deploy.UpdateMachine:
			return o.updateMachine(ctx, m, do)
		case deploy.RestartMachine:
			return o.restartMachine(ctx, m)
		case deploy.CordonMachine:
			return o.cordonMachine(ctx, m, true)
		case deploy.UncordonMachine:
			return o.cordonMachine(ctx, m, false)
		case deploy.StopMachine:
			return o.stopMachine(ctx, m)
		case deploy.StartMachine:
			return o.startMachine(ctx, m)
		case deploy.SetMetadata:
			return o.setMetadata(ctx, m, do.Metadata)
		case deploy.DestroyMachine:
			return o.destroyMachine(ctx, m)
		}
		return bourse.Errorf(bourse.CodeInternal, "unknown action %s", s.Do)
	})
}

// withLease waits until the run holds the lease of the step's machine, and then calls do. If again is set, it
// reacquires a lost lease.
func (o operation) withLease(ctx context.Context, again bool, do func(ctx context.Context, m target) error) error {
	id := o.journal.machine(o.i)
	in, nonce, leave, err := o.leases.acquireFor(ctx, o.i, id, again)
	if err != nil {
		return err
	}
	defer leave()
	if o.leases.neverHeld(id) {
		if !o.destroys(id) {
			return errGone(id)
		}
		if !deploy.Is[deploy.DestroyMachine](o.plan.Steps[o.i].Do) { // destroyMachine also waits until the machine no longer exists
			o.recordUnchanged()
			return nil
		}
	}
	err = do(in, target{id, nonce})
	if err != nil && ctx.Err() == nil && in.Err() != nil {
		return context.Cause(in) // the lease was lost during the call
	}
	return err
}

// recordUnchanged records that the step's machine was already in the desired state, so that there is nothing to undo.
func (o operation) recordUnchanged() { o.journal.change(o.i, func(p *progress) { p.unchanged = true }) }

// repeat sends a request for the machine with this ID, and retries it. See [requests.repeat].
func (o operation) repeat(ctx context.Context, id bourse.MachineID, limit time.Duration, f func(ctx context.Context, unknown bool) error) error {
	return o.requests.repeat(ctx, repeatableRequest{step: o.i, machine: id, limit: limit}, f)
}

// act makes a request that changes a machine, and records the outcome. It fails if the machine's lease is lost.
func (o operation) act(ctx context.Context, id bourse.MachineID, f func() error) error {
	if err := o.leases.refresh(ctx, id); err != nil {
		return err
	}
	o.journal.change(o.i, func(p *progress) { p.sent = true })
	err := f()
	o.outcome(err)
	return err
}

// repeatable makes a request that changes a machine. The request may be repeated even if the
// outcome of earlier attempts is unknown.
func (o operation) repeatable(ctx context.Context, m target, limit time.Duration, f func(context.Context) error) error {
	return o.repeat(ctx, m.id, limit, func(ctx context.Context, _ bool) error {
		return o.act(ctx, m.id, func() error { return f(ctx) })
	})
}

// outcome records whether the outcome of the step's request is known. An unknown outcome remains unknown after a
// refusal, because an earlier, unanswered request may still be in progress.
func (o operation) outcome(err error) {
	o.journal.change(o.i, func(p *progress) {
		switch bourse.CodeOf(err) {
		case bourse.CodeTimeout, bourse.CodeCanceled:
			p.unknown = true
		case "":
			p.unknown = false
		default: // keep the former value
		}
	})
}

// readMachine reads a machine, with retries.
func (o operation) readMachine(ctx context.Context, id bourse.MachineID) (m machinesapi.Machine, err error) {
	err = o.repeat(ctx, id, requestTimeout, func(ctx context.Context, _ bool) error {
		m, err = o.api.Machine(ctx, id)
		return err
	})
	return m, err
}

// updateMachine creates a new version of the machine. No other client can do so while the
// run holds the lease.
func (o operation) updateMachine(ctx context.Context, m target, do deploy.UpdateMachine) error {
	config := *do.Config
	config.Standbys = o.standbys(config.Standbys, do.StandbyOf)
	before := do.Instance
	if before == "" {
		now, err := o.readMachine(ctx, m.id)
		if err != nil {
			return err
		}
		before = now.InstanceID
	}
	o.journal.change(o.i, func(p *progress) { p.instance = before })
	return o.newVersion(ctx, m, before, true, machinesapi.UpdateMachine{Config: &config, SkipLaunch: do.Stopped})
}

// newVersion updates a machine that has the version current. If the answer is lost, newVersion repeats the request. At
// most one of these requests takes effect, because each of them names the version current, and the worker refuses it if
// the machine has another version by then. only specifies that no other request of this run could create a newer
// version. If only is set and the machine has a newer version after an unanswered request, newVersion concludes that
// this request created it.
func (o operation) newVersion(ctx context.Context, m target, current bourse.InstanceID, only bool, in machinesapi.UpdateMachine) error {
	in.CurrentVersion = current
	return o.repeat(ctx, m.id, o.opts.Wait+requestTimeout, func(ctx context.Context, unknown bool) error {
		var now machinesapi.Machine
		err := o.act(ctx, m.id, func() (err error) {
			now, err = o.api.Update(ctx, m.id, in, m.nonce)
			return err
		})
		switch bourse.CodeOf(err) {
		case "":
			o.journal.made(&now)
			return nil
		case bourse.CodeConflict, bourse.CodeFailedPrecondition:
		default:
			return err
		}
		// An earlier, unanswered request may be the reason for this refusal, and may still be in progress.
		now, unread := o.api.Machine(ctx, m.id)
		switch conflict := bourse.CodeOf(err) == bourse.CodeConflict; {
		case unread != nil:
			return unread
		case now.State == bourse.StateReplacing, unknown && !now.State.Settled() && now.State != bourse.StateRestarting:
			return errBusyMachine(m.id)
		case now.InstanceID == current && conflict:
			// Either an update is waiting for its image, or the lease is lost. The next attempt to extend the lease detects the
			// loss.
			return errBusyMachine(m.id)
		case now.InstanceID == current, !unknown && !conflict:
			return err
		case !unknown, !only, now.Config == nil, now.Config.Metadata[deploy.KeyRelease] != in.Config.Metadata[deploy.KeyRelease]:
			return errChanged(m.id, current, now.InstanceID)
		}
		o.outcome(nil)
		if now.State == bourse.StateFailed {
			return bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s now has version %s, which failed to start", m.id, now.InstanceID)
		}
		o.journal.made(&now)
		return nil
	})
}

// standbys returns a standby's primaries: ids and, if madeBy is set, the machine that the step with this ID created.
func (o operation) standbys(ids []bourse.MachineID, madeBy *int) []bourse.MachineID {
	if madeBy == nil {
		return ids
	}
	made := o.journal.machine(*madeBy)
	if slices.Contains(ids, made) {
		return ids
	}
	return append(slices.Clone(ids), made)
}

func (o operation) restartMachine(ctx context.Context, m target) error {
	before, err := o.readMachine(ctx, m.id)
	if err != nil {
		return err
	}
	return o.repeat(ctx, m.id, o.opts.Wait+requestTimeout, func(ctx context.Context, unknown bool) error {
		if unknown {
			now, err := o.api.Machine(ctx, m.id)
			if err != nil {
				return err
			}
			if now.Starts > before.Starts && now.State == bourse.StateStarted {
				o.journal.made(&now)
				return nil
			}
		}
		return o.act(ctx, m.id, func() error { return o.api.Restart(ctx, m.id, m.nonce) })
	})
}

// cordonMachine cordons or uncordons a machine.
func (o operation) cordonMachine(ctx context.Context, m target, cordoned bool) error {
	now, err := o.readMachine(ctx, m.id)
	if err != nil {
		return err
	}
	if now.Cordoned == cordoned {
		o.recordUnchanged()
		return nil
	}
	return o.setCordoned(ctx, m, cordoned)
}

func (o operation) setCordoned(ctx context.Context, m target, cordoned bool) error {
	return o.repeatable(ctx, m, requestTimeout, func(ctx context.Context) error { return o.api.Cordon(ctx, m.id, cordoned, m.nonce) })
}

// stopMachine stops a machine, and waits until its program has exited.
func (o operation) stopMachine(ctx context.Context, m target) error {
	now, err := o.readMachine(ctx, m.id)
	if err != nil {
		return err
	}
	if now.State == bourse.StateStopped || now.State == bourse.StateFailed {
		o.recordUnchanged()
		return nil
	}
	if err := o.repeatable(ctx, m, requestTimeout, func(ctx context.Context) error { return o.api.Stop(ctx, m.id, m.nonce) }); err != nil {
		return err
	}
	return o.awaitState(ctx, m.id, o.opts.Wait, bourse.StateStopped, bourse.StateFailed)
}

// startMachine starts a machine, and waits until it has started.
func (o operation) startMachine(ctx context.Context, m target) error {
	now, err := o.readMachine(ctx, m.id)
	if err != nil {
		return err
	}
	if now.State == bourse.StateStarted {
		o.recordUnchanged()
		o.journal.made(&now)
		return nil
	}
	if now.State == bourse.StateStopping || now.State == bourse.StateSuspending {
		// Another client has requested the stop, and was then probably killed.
		err := o.awaitState(ctx, m.id, o.opts.Wait, bourse.StateStopped, bourse.StateSuspended, bourse.StateFailed, bourse.StateDestroyed)
		if err != nil {
			return err
		}
	}
	if err := o.repeatable(ctx, m, requestTimeout, func(ctx context.Context) error { return o.api.Start(ctx, m.id, m.nonce) }); err != nil {
		return err
	}
	if err := o.awaitState(ctx, m.id, o.opts.Wait, bourse.StateStarted); err != nil {
		return err
	}
	if now, err = o.readMachine(ctx, m.id); err != nil {
		return err
	}
	o.journal.made(&now)
	return nil
}

// awaitState waits until a machine is in one of the given states.
func (o operation) awaitState(ctx context.Context, id bourse.MachineID, most time.Duration, states ...bourse.State) error {
	want := machinesapi.WaitMachine{Timeout: bourse.Duration(min(most, 30*time.Second))}
	for _, s := range states {
		want.States = append(want.States, string(s))
	}
	end := time.Now().Add(most)
	var silent time.Time
	for {
		limited, cancel := context.WithTimeout(ctx, time.Duration(want.Timeout)+requestTimeout)
		_, err := o.api.Wait(limited, id, want)
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
				o.emit(Event{Step: o.i, State: Waiting, Machine: id, Text: "retrying: " + bourse.MessageOf(err)})
			}
			if time.Since(silent) > o.opts.RetryFor {
				return err
			}
			if err := sleep(ctx, fastInterval); err != nil {
				return err
			}
		default:
			return err
		}
		if time.Now().After(end) {
			return prefixError("not "+want.States[0]+" after "+most.String(), err)
		}
	}
}

// setMetadata sets keys in a machine's metadata; an empty value removes a key.
func (o operation) setMetadata(ctx context.Context, m target, metadata map[string]string) error {
	in := machinesapi.MetadataPatch{Metadata: map[string]*string{}}
	for k, v := range metadata {
		if in.Metadata[k] = nil; v != "" {
			in.Metadata[k] = &v
		}
	}
	return o.repeatable(ctx, m, requestTimeout, func(ctx context.Context) error { return o.api.SetMetadata(ctx, m.id, in) })
}

// destroyMachine destroys a machine. It succeeds if the machine does not exist.
func (o operation) destroyMachine(ctx context.Context, m target) error {
	err := o.repeatable(ctx, m, o.opts.Wait+requestTimeout, func(ctx context.Context) error { return o.api.Destroy(ctx, m.id, m.nonce) })
	if err == nil || bourse.CodeOf(err) == bourse.CodeNotFound {
		o.leases.destroyed(m.id)
		return nil
	}
	return err
}

// destroyVolume destroys a volume. It succeeds if the volume does not exist.
func (o operation) destroyVolume(ctx context.Context, id bourse.VolumeID) error {
	err := o.repeat(ctx, "", requestTimeout, func(ctx context.Context, _ bool) error {
		o.journal.change(o.i, func(p *progress) { p.sent = true })
		err := o.api.DestroyVolume(ctx, id)
		o.outcome(err)
		return err
	})
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return nil
	}
	return err
}
