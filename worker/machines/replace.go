package machines

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"

	"github.com/bourse-dev/bourse/worker/state"
)

// beginNext begins an update whose image is available. If the machine is not running, or if its program would not
// notice the update, the next version becomes the current one immediately. Otherwise, beginNext records that the
// current version must be stopped first. It returns errChanged if the machine's state does not allow an update now.
func (ms *Machines) beginNext(tx *store.Tx, m *bourse.Machine) ([]bourse.Event, error) {
	switch {
	case m.State == bourse.StateStopped || m.State == bourse.StateFailed:
		if waitsForSchedule(m, m.Next) {
			m.Next.Launch = false
		}
		return ms.makeNextCurrent(tx, m)
	case m.State != bourse.StateStarted && m.State != bourse.StateSuspended && m.State != bourse.StateRestarting:
		return nil, errChanged
	case sameForProgram(m):
		if err := tx.RecordVersion(m); err != nil {
			return nil, err
		}
		resources := m.Next.Takes
		adoptNext(m)
		m.Takes = resources
		return []bourse.Event{{Type: bourse.EventUpdate, State: m.State, Source: bourse.SourceUser}}, nil
	}
	m.Boot.Requested = true
	m.State = bourse.StateReplacing
	return []bourse.Event{{Type: bourse.EventUpdate, State: m.State, Source: bourse.SourceUser}}, nil
}

// waitsForSchedule reports whether m is stopped until its schedule starts it again, and m's next version also has a
// schedule.
func waitsForSchedule(m *bourse.Machine, next *bourse.NextVersion) bool {
	return m.State == bourse.StateStopped && m.Config.Schedule != "" && next.Config.Schedule != ""
}

// adoptNext makes m's next version its current version.
func adoptNext(m *bourse.Machine) {
	n := m.Next
	m.Next, m.Instance, m.Config, m.Image = nil, n.Instance, n.Config, n.Image
	m.Cordoned = m.Cordoned || n.Cordoned
	m.Secrets, m.SkipSecrets = max(m.Secrets, n.Secrets), n.SkipSecrets
}

// makeNextCurrent makes m's next version its current version, and records the intent to launch it. m's program must not
// be running. makeNextCurrent returns the same errors as recordLaunch.
func (ms *Machines) makeNextCurrent(tx *store.Tx, m *bourse.Machine) (events []bourse.Event, err error) {
	if err := tx.RecordVersion(m); err != nil {
		return nil, err
	}
	launch, resources := m.Next.Launch, m.Next.Takes
	adoptNext(m)
	m.Takes = resources
	events = []bourse.Event{{Type: bourse.EventLaunch, State: bourse.StateCreated, Source: bourse.SourceUser}}
	if launch {
		return events, ms.recordLaunch(tx, m)
	}
	releaseRunning(m)
	m.State = bourse.StateStopped
	m.Boot.Port, err = ms.choosePort(tx, m)
	return append(events, bourse.Event{Type: bourse.EventPrepare, State: m.State, Source: bourse.SourceWorker}), err
}

// replaceStep stops the current version of a machine that is being updated.
func (ms *Machines) replaceStep(ctx context.Context, r *machineRun) fsm.Outcome {
	if err := ms.endCurrent(ctx, r.Request.Machine); err != nil {
		return fsm.Retry(err)
	}
	return fsm.Done()
}

func (ms *Machines) endCurrent(ctx context.Context, id bourse.MachineID) error {
	m, err := ms.state.Machine(ctx, id)
	if err != nil || m.State != bourse.StateReplacing || !mayHaveTask(&m) {
		return err
	}
	signal, timeout := stopOf(&m.Config)
	return ms.end(ctx, &m, signal, timeout)
}

// nextVersionStep makes a machine's next version the current one, once the previous version has
// stopped.
func (ms *Machines) nextVersionStep(ctx context.Context, r *machineRun) fsm.Outcome {
	m, err := ms.state.Machine(ctx, r.Request.Machine)
	switch {
	case err != nil:
		return fsm.Abort(err)
	case m.State == bourse.StateStarting: // beginNext has already recorded the next version
		return fsm.Done()
	case m.State != bourse.StateReplacing || m.Next == nil:
		return fsm.Finish()
	}
	write := state.InTx(func(tx *store.Tx) error { return ms.recordNextVersion(tx, m.ID) })
	if m.Next.Launch {
		return fsm.Done(write)
	}
	if err := ms.tryTearDown(ctx, &m); err != nil {
		return fsm.Retry(err)
	}
	return fsm.Finish(write)
}

func (ms *Machines) recordNextVersion(tx *store.Tx, id bourse.MachineID) error {
	_, err := state.ChangeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		if m.State != bourse.StateReplacing || m.Next == nil || mayHaveTask(m) {
			return false, nil, nil
		}
		events, err := ms.makeNextCurrent(tx, m)
		if bourse.CodeOf(err) == bourse.CodeInsufficient { // too few devices are available, because the operator has renamed them
			m.State = bourse.StateFailed
			return true, append(events, failedLaunchEvents(m, err)...), nil
		}
		return true, events, err
	})
	return err
}

// stopUpdate completes an update whose run an operator has canceled. The machine gets its new version but is not
// launched.
func (ms *Machines) stopUpdate(ctx context.Context, r *machineRun) fsm.Outcome {
	if err := ms.endCurrent(ctx, r.Request.Machine); err != nil {
		return fsm.Retry(err)
	}
	err := ms.state.Commit(ctx, r.Request.Machine, func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, r.Request.Machine, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			if m.State == bourse.StateReplacing && m.Next != nil {
				m.Next.Launch = false
			}
			return m.State == bourse.StateReplacing, nil, nil
		})
		return err
	})
	if err != nil {
		return fsm.Retry(err)
	}
	return ms.nextVersionStep(ctx, r)
}

// sameForProgram reports whether m's next version looks the same to m's program as the current one. A new version
// number alone does not justify a restart.
func sameForProgram(m *bourse.Machine) bool {
	if m.Next.Renew {
		return false
	}
	now, next := visibleConfig(&m.Config), visibleConfig(&m.Next.Config)
	if m.Image != nil && m.Next.Image != nil {
		if m.Image.Digest != m.Next.Image.Digest {
			return false
		}
		now.Image, next.Image = "", ""
	}
	a, errA := json.Marshal(now)
	b, errB := json.Marshal(next)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// visibleConfig returns only those fields of a config that the machine's program can observe.
func visibleConfig(c *bourse.Config) bourse.Config {
	out := *c
	out.Metadata = map[string]string{MetadataGroup: c.Metadata[MetadataGroup]}
	out.Restart, out.AutoDestroy, out.StopConfig, out.Requirements = nil, false, nil, nil
	out.Services, out.Checks, out.Metrics, out.Schedule, out.Standbys, out.Statics = nil, nil, nil, "", nil, nil
	out.Mounts = nil
	for _, mount := range c.Mounts {
		out.Mounts = append(out.Mounts, bourse.Mount{Volume: mount.Volume, Path: mount.Path})
	}
	return out
}

// dropNext abandons an update and records the reason, unless the update has already
// begun to stop the current version.
func (ms *Machines) dropNext(tx *store.Tx, id bourse.MachineID, version bourse.InstanceID, cause error) error {
	_, err := state.ChangeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		if !hasPendingUpdate(m, version) {
			return false, nil, nil
		}
		m.Next = nil
		resources := ms.host.Ledger.WhileRunning(&m.Config)
		if !willRun(m) {
			resources = admit.WhileStopped(resources)
		}
		m.Takes = admit.Min(m.Takes, resources)
		return true, []bourse.Event{{
			Type: bourse.EventUpdate, State: m.State, Source: bourse.SourceWorker, At: time.Now().UTC(),
			Reason: "update abandoned, current version kept: " + bourse.MessageOf(cause),
		}}, nil
	})
	return err
}

// hasPendingUpdate reports whether m has an update to the given version that has not begun yet.
func hasPendingUpdate(m *bourse.Machine, version bourse.InstanceID) bool {
	if m.Next == nil || m.Next.Instance != version {
		return false
	}
	return m.State != bourse.StateReplacing && m.State != bourse.StateDestroying && m.State != bourse.StateDestroyed
}
