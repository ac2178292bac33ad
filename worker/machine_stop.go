package worker

import (
	"context"
	"errors"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// stop asks a machine to end and answers when that is recorded. A stopped one
// is no error; one that waits for its policy's restart is stopped at once.
func (w *Worker) stop(ctx context.Context, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error) {
	var old, now bourse.Machine
	_, err := w.begin(ctx, w.defs.stop, stopRequest(id, act), inTx(func(tx *store.Tx) error {
		var err error
		now, err = changeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			old = *m
			if err := mayStop(m, act.Nonce); err != nil {
				return false, nil, err
			}
			m.Boot.Requested = true
			m.State = bourse.StateStopping
			return true, []bourse.Event{{Type: bourse.EventStop, State: m.State, Source: bourse.SourceUser}}, nil
		})
		return err
	}))
	if errors.Is(err, errAlready) {
		now, err = old, nil
	}
	if err != nil { // the transaction may still be at work on old and now
		return fabric.ActReply{}, err
	}
	return fabric.ActReply{Previous: old.State, Machine: now}, nil
}

func stopRequest(id bourse.MachineID, act fabric.Act) machineRequest {
	return machineRequest{Machine: id, Signal: act.Signal, Timeout: time.Duration(act.Timeout)}
}

func mayStop(m *bourse.Machine, nonce string) error {
	if err := checkLease(m, nonce); err != nil {
		return err
	}
	switch m.State {
	case bourse.StateStarted, bourse.StateStarting, bourse.StateRestarting:
		return nil
	case bourse.StateStopped, bourse.StateStopping:
		return errAlready
	case bourse.StateDestroyed:
		return errNoMachine
	default:
		return bourse.Errorf(bourse.CodeFailedPrecondition, "unable to stop machine from current state: '%s'", m.State)
	}
}

// stopStep ends the task of a machine that is stopping, or restarting on
// request. The watch of the task records the exit.
func (w *Worker) stopStep(ctx context.Context, r *machineRun) fsm.Outcome {
	m, err := w.machine(ctx, r.Request.Machine)
	if err != nil {
		return fsm.Abort(err)
	}
	if m.State != bourse.StateStopping && m.State != bourse.StateRestarting {
		return fsm.Finish() // it ended by itself, and that was recorded
	}
	if !alive(&m) {
		if m.State == bourse.StateStopping {
			if err := w.shed(ctx, &m); err != nil {
				return fsm.Retry(err)
			}
		}
		return fsm.Done(inTx(func(tx *store.Tx) error { return recordStopped(tx, m.ID) }))
	}
	signal, timeout := m.Config.Stop()
	if bourse.InRegistry(m.Config.Image) && (m.Config.StopConfig == nil || m.Config.StopConfig.Signal == "") {
		signal = "" // the image's own
	}
	if r.Request.Signal != "" {
		signal = r.Request.Signal
	}
	if r.Request.Timeout > 0 {
		timeout = r.Request.Timeout
	}
	if err := w.end(ctx, &m, signal, timeout); err != nil {
		return fsm.Retry(err)
	}
	return fsm.Done()
}

// end stops a machine's task and waits until its exit is recorded.
func (w *Worker) end(ctx context.Context, m *bourse.Machine, signal bourse.Signal, timeout time.Duration) error {
	d, err := w.driverOf(m.Config.Image)
	if err != nil {
		return err
	}
	err = d.Stop(ctx, taskOf(m), signal, timeout)
	if err != nil && bourse.CodeOf(err) != bourse.CodeNotFound { // not found: asked to end before it was launched
		return err
	}
	w.watch(d, taskOf(m), unstarted)
	_, err = w.await(ctx, m.ID, func(now *bourse.Machine) bool { return now.Boot.Number != m.Boot.Number || now.Boot.Exit != nil })
	return err
}

// recordStopped settles a machine that is stopping although nothing of it
// runs: it waited for its policy's restart.
func recordStopped(tx *store.Tx, id bourse.MachineID) error {
	_, err := changeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		if m.State != bourse.StateStopping {
			return false, nil, nil
		}
		m.State = bourse.StateStopped
		settle(m)
		return true, []bourse.Event{{Type: bourse.EventStop, State: m.State, Source: bourse.SourceWorker}}, nil
	})
	return err
}
