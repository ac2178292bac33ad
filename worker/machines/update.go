package machines

import (
	"cmp"
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/state"
)

// updateTimeout is the time limit for pulling an update's image.
const updateTimeout = 10 * time.Minute

// Update creates a new version of a machine. It returns once the new version has started or, if the update does not
// launch the machine, once the new version is recorded. The current version runs until the new image is on the host,
// and is kept if the pull fails. Then the current version is stopped, the new config is recorded, and the machine is
// launched. If the program would not notice the changes, they are applied without a restart.
//
// Errors: conflict if another caller holds the lease, another update is in progress, or req.Current is not the current
// version; invalid if the change requires a new machine; insufficient_capacity if the host has no room for the new
// version; failed_precondition if the machine's state does not allow an update, if the update mounts another volume, if
// the image cannot be pulled (the machine keeps its old version), or if the new version failed to start (the machine
// keeps the new version).
func (ms *Machines) Update(ctx context.Context, req fabric.UpdateRequest) (fabric.ActReply, error) {
	if err := req.Config.Normalize(); err != nil {
		return fabric.ActReply{}, err
	}
	if req.LeaseTTL < 0 || req.LeaseTTL > bourse.MaxLeaseTTL {
		return fabric.ActReply{}, bourse.Errorf(bourse.CodeInvalid, "invalid lease_ttl %d: use 0 to %d seconds", req.LeaseTTL, bourse.MaxLeaseTTL)
	}
	old, err := ms.state.Machine(ctx, req.Machine)
	if err == nil {
		err = mayUpdate(&old, &req)
	}
	if err == nil {
		err = cmp.Or(ms.state.Store.SpaceError(), ms.unsupported(&old, &req.Config))
	}
	if err != nil {
		return fabric.ActReply{}, err
	}
	next := bourse.NextVersion{
		Instance: bourse.NewInstanceID(), Config: req.Config, Takes: ms.host.Ledger.WhileRunning(&req.Config),
		Launch: !req.SkipLaunch, Cordoned: req.Cordoned,
		Secrets: max(old.Secrets, req.Secrets), SkipSecrets: req.SkipSecrets, Renew: req.Renew > old.Secrets || req.SkipSecrets != old.SkipSecrets,
	}
	if next.Launch && !next.SkipSecrets {
		if err := ms.awaitSecrets(ctx, &old, next.Secrets, req.AppKeys); err != nil {
			return fabric.ActReply{}, err
		}
	}
	def, resource, begin := ms.defs.of(&old).update, state.OfMachine(old.ID), machineRequest{Machine: old.ID, Version: next.Instance}
	pull := !pinned(&old, &next)
	if pull {
		def, resource, begin.Until = ms.defs.ready, state.OfUpdate(old.ID), time.Now().Add(updateTimeout)
	} else {
		next.Image = old.Image
	}
	run, err := def.Start(ctx, ms.state.Engine, resource, begin, fsm.StartOptions{Queue: true, Write: state.InTx(func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, old.ID, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			if err := mayUpdate(m, &req); err != nil {
				return false, nil, err
			}
			if err := ms.recordNext(tx, m, next); err != nil {
				return false, nil, err
			}
			if !next.SkipSecrets {
				if err := keepKeys(tx, m.ID, req.AppKeys); err != nil {
					return false, nil, err
				}
			}
			if req.LeaseTTL > 0 {
				takeLease(m, req.Nonce, req.LeaseOwner, "", time.Duration(req.LeaseTTL)*time.Second)
			}
			if pull {
				return true, []bourse.Event{{Type: bourse.EventUpdate, State: m.State, Source: bourse.SourceUser, By: req.LeaseOwner}}, nil
			}
			events, err := ms.beginNext(tx, m)
			return true, events, err
		})
		return err
	})})
	if err != nil {
		return fabric.ActReply{}, err
	}
	ms.state.Machines.Applied(old.ID)
	now, err := ms.updated(ctx, run, old.ID, next.Instance)
	return fabric.ActReply{Previous: old.State, Machine: now}, err
}

// updated waits until the version that an update created has started or failed to start. It returns the machine.
func (ms *Machines) updated(ctx context.Context, run *fsm.Handle[machineResult], id bourse.MachineID, version bourse.InstanceID) (bourse.Machine, error) {
	if _, err := run.Applied(ctx); err != nil {
		switch m, unread := ms.state.Machine(ctx, id); {
		case ctx.Err() != nil || unread != nil:
			return m, err
		case m.Instance == version: // the update is complete, and the record contains its outcome
		case m.State == bourse.StateDestroying || m.State == bourse.StateDestroyed:
			return m, state.ErrNoMachine
		default:
			return m, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s keeps version %s: %w", id, m.Instance, err)
		}
	}
	m, err := ms.state.AwaitMachine(ctx, id, func(m *bourse.Machine) bool {
		return (m.Next == nil || m.Next.Instance != version) && (m.Instance != version || m.State != bourse.StateStarting) ||
			m.State == bourse.StateDestroying || m.State == bourse.StateDestroyed
	})
	switch {
	case err != nil:
		return m, err
	case m.State == bourse.StateDestroying || m.State == bourse.StateDestroyed:
		return m, state.ErrNoMachine
	case m.Instance != version:
		return m, bourse.Errorf(bourse.CodeConflict, "machine %s has version %s now: the update to %s was superseded or abandoned", id, m.Instance, version)
	case m.State == bourse.StateFailed:
		why := ""
		if m.Boot.Exit != nil {
			why = ": " + m.Boot.Exit.Error
		}
		return m, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s now has version %s, which failed to start%s", id, version, why)
	}
	return m, nil
}

// mayUpdate returns an error if the machine's state, lease or config does not allow an update.
func mayUpdate(m *bourse.Machine, req *fabric.UpdateRequest) error {
	if err := mayCall(m, bourse.CallUpdate, req.Nonce); err != nil {
		return err
	}
	switch {
	case m.Next != nil:
		return bourse.Errorf(bourse.CodeConflict, "machine %s is being updated to version %s: wait until the update has finished", m.ID, m.Next.Instance)
	case req.Current != "" && req.Current != m.Instance:
		return bourse.Errorf(bourse.CodeConflict, "machine %s has version %s, not %s: read the machine again", m.ID, m.Instance, bourse.Quoted(string(req.Current)))
	case req.Name != "" && req.Name != m.Name:
		return bourse.Errorf(bourse.CodeInvalid, "invalid name %s: machine %s keeps its name, %s", bourse.Quoted(req.Name), m.ID, m.Name)
	case req.Region != "" && req.Region != string(m.Region):
		return bourse.Errorf(bourse.CodeInvalid, "invalid region %s: machine %s stays in %s; clone it to have a machine in another region", bourse.Quoted(req.Region), m.ID, m.Region)
	case req.Config.ImageKind() != m.Config.ImageKind():
		return bourse.Errorf(bourse.CodeInvalid, "invalid config.image %s: machine %s has image %s, which needs another driver: create a new machine",
			bourse.Quoted(req.Config.Image), m.ID, bourse.Quoted(m.Config.Image))
	case !sameVolumes(m.Config.Mounts, req.Config.Mounts):
		return bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s keeps the volumes that it was created with: create a new machine to use other volumes", m.ID)
	}
	return nil
}

func sameVolumes(a, b []bourse.Mount) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Volume != b[i].Volume {
			return false
		}
	}
	return true
}

// unsupported returns an error if the worker could not run m with config c even if the worker were idle.
func (ms *Machines) unsupported(m *bourse.Machine, c *bourse.Config) error {
	org, err := ms.images.OrgOf(m)
	if err != nil {
		return err
	}
	switch r := ms.host.Unsupported(org, c); {
	case r == nil:
		return nil
	case r.Reason == bourse.RefusedUnavailable:
		return bourse.Errorf(bourse.CodeUnavailable, "%s", r.Detail)
	default:
		return bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s cannot be updated on its worker: %s", m.ID, r.Detail)
	}
}

// recordNext records m's next version, and takes the resources that it needs beyond those of the current version. The
// two versions never run at the same time, so they share resources.
func (ms *Machines) recordNext(tx *store.Tx, m *bourse.Machine, next bourse.NextVersion) error {
	if !willRun(m) && (!next.Launch || waitsForSchedule(m, &next)) {
		next.Launch, next.Takes = false, admit.WhileStopped(next.Takes) // if the machine is started in the meantime, takeBoot allocates the remaining resources
	}
	if err := ms.setResources(tx, m, admit.Max(m.Takes, next.Takes)); err != nil {
		return err
	}
	with := *m
	with.Config = next.Config
	m.Next = &next
	err := ms.volumes.Attach(tx, &with) // m's volumes already belong to it, so this only fills in the mounts of the next version
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s cannot be updated: %w", m.ID, err)
	}
	return err
}

// pinned reports whether a machine's next version is certain to have the same image as
// the current one.
func pinned(m *bourse.Machine, next *bourse.NextVersion) bool {
	return m.Config.ImageKind() != bourse.RegistryImage ||
		m.Image != nil && next.Config.Image == m.Config.Image && bourse.ParseImageRef(m.Config.Image).Digest != ""
}
