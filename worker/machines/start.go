package machines

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/state"
)

// errAlready is returned if the machine is already in the requested state.
var errAlready = errors.New("already there")

// Start starts a stopped machine, or resumes a suspended one, and returns once it has started. If a suspended machine's
// program is lost, Start starts the machine as if it had been stopped. Errors: failed_precondition if the machine's
// state does not allow a start, its program cannot be started, or another program uses its port; insufficient_capacity
// if the host has no room for the machine now; conflict while another caller holds its lease.
func (ms *Machines) Start(ctx context.Context, id bourse.MachineID, act fabric.MachineAction) (fabric.ActReply, error) {
	return ms.start(ctx, id, startOptions{
		may: func(m *bourse.Machine) error { return mayCall(m, bourse.CallStart, act.Nonce) }, secrets: act.Secrets, keys: act.AppKeys,
	})
}

// StartIf starts a machine without a client's request. In the transaction that records the start, it first calls check,
// which can prevent the start by returning an error. It then calls write, which may change the machine and return
// additional events.
func (ms *Machines) StartIf(ctx context.Context, id bourse.MachineID, check func(*bourse.Machine) error, write func(*bourse.Machine) []bourse.Event) (fabric.ActReply, error) {
	return ms.start(ctx, id, startOptions{write: write, may: func(m *bourse.Machine) error { return cmp.Or(check(m), mayCall(m, bourse.CallStart, "")) }})
}

// startOptions contains the parameters of a start.
type startOptions struct {
	may     func(m *bourse.Machine) error                   // returns an error if the start is not allowed; see mayCall
	write   func(m *bourse.Machine) (events []bourse.Event) // changes the machine when its boot is recorded, and returns additional events; may be nil
	secrets uint64                                          // minimum version of the app's secrets
	keys    bourse.AppKeys                                  // keys for the app's secrets; if empty, the recorded keys are used
}

func (ms *Machines) start(ctx context.Context, id bourse.MachineID, s startOptions) (fabric.ActReply, error) {
	for {
		reply, err := ms.startOnce(ctx, id, s)
		if !errors.Is(err, errChanged) {
			return reply, err
		}
	}
}

func (ms *Machines) startOnce(ctx context.Context, id bourse.MachineID, s startOptions) (fabric.ActReply, error) {
	old, err := ms.state.Machine(ctx, id)
	if err != nil {
		return fabric.ActReply{}, err
	}
	frozen := old.State == bourse.StateSuspended
	if !frozen && s.may(&old) == nil {
		if err := cmp.Or(ms.state.Store.SpaceError(), ms.awaitSecrets(ctx, &old, s.secrets, s.keys)); err != nil {
			return fabric.ActReply{}, err
		}
	}
	def := ms.defs.of(&old).start
	if frozen {
		def = ms.defs.resume
	}
	run, err := ms.begin(ctx, def, machineRequest{Machine: id}, state.InTx(func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			old = *m
			if err := s.may(m); err != nil {
				return false, nil, err
			}
			switch {
			case frozen != (m.State == bourse.StateSuspended):
				return false, nil, errChanged
			case frozen:
				m.State = bourse.StateStarting // a suspended machine still has its resources
			default:
				m.Secrets = max(m.Secrets, s.secrets)
				if err := ms.takeBoot(tx, m); err != nil {
					return true, nil, err
				}
			}
			if withSecrets(m) {
				if err := keepKeys(tx, id, s.keys); err != nil {
					return false, nil, err
				}
			}
			if s.write == nil {
				return true, nil, nil
			}
			return true, s.write(m), nil
		})
		return err
	}))
	if errors.Is(err, errAlready) {
		return fabric.ActReply{Previous: old.State, Machine: old}, nil
	}
	if err != nil {
		return fabric.ActReply{}, err
	}
	now, err := ms.appliedMachine(ctx, id, run)
	if frozen && bourse.CodeOf(err) == bourse.CodeUnavailable {
		lost, awaitErr := ms.state.AwaitMachine(ctx, id, func(m *bourse.Machine) bool { return m.State != bourse.StateSuspended })
		if awaitErr == nil && lost.State == bourse.StateStopped {
			ms.state.Log.Warn("suspended machine has lost its program, starting it again", "machine", id)
			return fabric.ActReply{}, errChanged
		}
	}
	if code := bourse.CodeOf(err); code == bourse.CodeInvalid || code == bourse.CodeNotFound { // the program or its image caused the error
		err = bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s failed to start: %w", id, err)
	}
	return fabric.ActReply{Previous: old.State, Machine: now}, err
}

// appliedMachine waits until the effects of a run on a machine are visible, and returns the machine. The effects need
// not be durable yet: after a crash, the resumed run finds the task in its new state, and records that state again.
func (ms *Machines) appliedMachine(ctx context.Context, id bourse.MachineID, run *fsm.Handle[machineResult]) (bourse.Machine, error) {
	if _, err := run.Applied(ctx); err != nil {
		return bourse.Machine{}, err
	}
	return ms.state.Machine(ctx, id)
}

// mayCall returns nil if the machine's state and lease allow a call. Otherwise it returns errAlready if there is
// nothing to do, conflict while another caller holds the lease, not_found if the machine is gone, or
// failed_precondition if the machine's state does not allow the call.
func mayCall(m *bourse.Machine, call bourse.Call, nonce string) error {
	if err := checkLease(m, nonce); err != nil {
		return err
	}
	return stateAllows(m, call)
}

// stateAllows is like mayCall, but ignores the lease.
func stateAllows(m *bourse.Machine, call bourse.Call) error {
	switch answer, text := call.On(m.State); answer {
	case bourse.CallAllowed:
		return nil
	case bourse.CallNoChange:
		return errAlready
	case bourse.CallNotFound:
		return state.ErrNoMachine
	case bourse.CallRefused:
		return &bourse.Error{Code: bourse.CodeFailedPrecondition, Message: text}
	}
	return bourse.Errorf(bourse.CodeInternal, "machine %s: unknown call %s", m.ID, call)
}

// takeBoot allocates the resources that m needs while it runs, and records m's next boot.
func (ms *Machines) takeBoot(tx *store.Tx, m *bourse.Machine) error {
	if admit.PortInUse(m.Boot.Port) {
		return bourse.Errorf(bourse.CodeFailedPrecondition,
			"machine %s cannot start: another program on its host listens on port %d, its $PORT", m.ID, m.Boot.Port)
	}
	resources := ms.host.Ledger.WhileRunning(&m.Config)
	if n := m.Next; n != nil { // the resources must also suffice for the machine's next version
		n.Launch, n.Takes = true, ms.host.Ledger.WhileRunning(&n.Config)
		resources = admit.Max(resources, n.Takes)
	}
	if err := ms.setResources(tx, m, resources); err != nil {
		return err
	}
	if err := ms.recordLaunch(tx, m); err != nil {
		return err
	}
	m.Boot.PromotedFor = ""
	return nil
}

// setResources sets the resources that a machine takes. It returns CodeInsufficient if the host has no room for them.
func (ms *Machines) setResources(tx *store.Tx, m *bourse.Machine, resources bourse.Amounts) error {
	r, err := ms.host.CheckRoom(tx, m.Takes, resources)
	if err == nil && r != nil {
		err = hostFull(r)
	}
	if err == nil {
		m.Takes = resources
	}
	return err
}

// recordLaunch chooses a machine's devices and port, and records its next boot. It also
// clears the list of automatic restarts, because this boot was requested. It returns
// CodeInsufficient if there are too few devices, and CodeUnavailable if no port is free.
func (ms *Machines) recordLaunch(tx *store.Tx, m *bourse.Machine) error {
	devices, r, err := ms.host.FreeDevices(tx, m.Config.Guest, m.ID)
	if err == nil && r != nil {
		err = hostFull(r)
	}
	if err != nil {
		return err
	}
	port, err := ms.choosePort(tx, m)
	if err != nil {
		return err
	}
	m.Devices = devices
	recordBoot(m, port)
	m.Boot.Restarts = nil
	return nil
}

// choosePort chooses the port of m's next boot. It returns CodeUnavailable if no port is
// free.
func (ms *Machines) choosePort(tx *store.Tx, m *bourse.Machine) (int, error) {
	port, r := ms.host.Port(tx, &m.Config, m.PrivateIP.IsValid(), m.Boot.Port)
	if r != nil {
		return 0, bourse.Errorf(bourse.CodeUnavailable, "machine %s: %s", m.ID, r.Detail)
	}
	return port, nil
}

// hostFull converts a refusal into the error that is returned if a machine does not fit on its host.
func hostFull(r *bourse.Refusal) error {
	return bourse.Errorf(bourse.CodeInsufficient,
		"insufficient %s available to fulfill request on the current host (%s)", r.Resource, strings.TrimPrefix(r.Detail, "insufficient "))
}

// startAttach and startLaunch are the steps that start a machine again. If all attempts fail, the machine's state
// becomes failed.
func (ms *Machines) startAttach(ctx context.Context, r *machineRun) fsm.Outcome {
	return ms.attach(ctx, r, ms.recordStartFailed)
}

func (ms *Machines) startLaunch(ctx context.Context, r *machineRun) fsm.Outcome {
	return ms.launch(ctx, r, ms.recordStartFailed)
}

// recordStartFailed removes everything that a failed attempt to start a machine has left behind, and records that the
// machine has failed.
func (ms *Machines) recordStartFailed(ctx context.Context, _ *machineRun, m *bourse.Machine, cause error) fsm.Outcome {
	if !isHostProgram(m) {
		if err := ms.removeAttempt(ctx, m); err != nil {
			return fsm.Retry(errors.Join(cause, err))
		}
	}
	return fsm.Abort(cause, state.InTx(func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, m.ID, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			m.State = bourse.StateFailed
			return true, failedLaunchEvents(m, cause), nil
		})
		return err
	}))
}

// removeAttempt cleans up after a failed attempt to start m. It kills the program if it is running, and removes the
// attachments that a stopped machine does not keep.
func (ms *Machines) removeAttempt(ctx context.Context, m *bourse.Machine) error {
	d, err := ms.drivers.of(m.Config.ImageKind())
	if err == nil {
		err = d.Stop(ctx, TaskOf(m), "SIGKILL", 0)
	}
	if err != nil && bourse.CodeOf(err) != bourse.CodeNotFound {
		return err
	}
	return ms.tearDown(ctx, m)
}

// Restart stops a machine and starts it again, and returns once it has started. The
// machine keeps its resources during the restart. If the machine is stopped, Restart only
// starts it.
func (ms *Machines) Restart(ctx context.Context, id bourse.MachineID, act fabric.MachineAction) (fabric.ActReply, error) {
	if act.Force {
		act.Signal = "SIGKILL"
	}
	old, err := ms.state.Machine(ctx, id)
	if err != nil {
		return fabric.ActReply{}, err
	}
	if mayCall(&old, bourse.CallRestart, act.Nonce) == nil {
		if err := ms.awaitSecrets(ctx, &old, act.Secrets, act.AppKeys); err != nil {
			return fabric.ActReply{}, err
		}
	}
	run, err := ms.begin(ctx, ms.defs.of(&old).restart, stopRequest(id, act), state.InTx(func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			old = *m
			if err := mayCall(m, bourse.CallRestart, act.Nonce); err != nil {
				return false, nil, err
			}
			if m.State != bourse.StateStarted {
				return false, nil, errAlready // nothing needs to be stopped
			}
			if withSecrets(m) {
				if err := keepKeys(tx, id, act.AppKeys); err != nil {
					return false, nil, err
				}
			}
			m.Boot.Requested, m.Boot.PromotedFor = true, "" // a standby that was restarted on request no longer replaces another machine
			m.Secrets = max(m.Secrets, act.Secrets)
			m.State = bourse.StateRestarting
			return true, []bourse.Event{{Type: bourse.EventRestart, State: m.State, Source: bourse.SourceUser, By: act.By}}, nil
		})
		return err
	}))
	if errors.Is(err, errAlready) {
		return ms.Start(ctx, id, act)
	}
	if err != nil {
		return fabric.ActReply{}, err
	}
	if _, err := run.Applied(ctx); err != nil {
		return fabric.ActReply{}, err
	}
	now, err := ms.state.Machine(ctx, id)
	return fabric.ActReply{Previous: old.State, Machine: now}, err
}

// rebootStep records the next boot of a machine that was stopped in order to be restarted.
func (ms *Machines) rebootStep(_ context.Context, r *machineRun) fsm.Outcome {
	return fsm.Done(state.InTx(func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, r.Request.Machine, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			if m.State != bourse.StateRestarting || m.Boot.Exit == nil {
				return false, nil, nil
			}
			port, err := ms.choosePort(tx, m)
			recordBoot(m, port)
			return true, nil, err
		})
		return err
	}))
}

// restartStep starts a machine again after the backoff of its restart policy, unless it
// was stopped or destroyed in the meantime.
func (ms *Machines) restartStep(ctx context.Context, r *machineRun) fsm.Outcome {
	m, err := ms.state.Machine(ctx, r.Request.Machine)
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return fsm.Finish()
	}
	if err != nil {
		return fsm.Retry(err)
	}
	_, err = ms.begin(ctx, ms.defs.of(&m).start, machineRequest{Machine: m.ID}, state.InTx(func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, m.ID, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			if m.State != bourse.StateRestarting || m.Boot.Number != r.Request.Boot {
				return false, nil, errAlready
			}
			port, err := ms.choosePort(tx, m)
			recordBoot(m, port)
			return true, nil, err
		})
		return err
	}))
	switch {
	case errors.Is(err, errAlready), bourse.CodeOf(err) == bourse.CodeNotFound:
		return fsm.Finish()
	case err != nil:
		return fsm.Retry(err)
	}
	return fsm.Done()
}
