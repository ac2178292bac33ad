package worker

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// createLaunch starts an order's machine for the first time. When that is
// impossible the order is not filled here: the machine ends as destroyed and
// the claim is answered with the reason.
func (w *Worker) createLaunch(ctx context.Context, r *machineRun) fsm.Outcome {
	return w.launch(ctx, r, func(tx *store.Tx, m *bourse.Machine, cause error) error {
		if rec, ok, err := tx.Order(m.Order); err != nil {
			return err
		} else if ok && rec.Machine == m.ID {
			rec.Machine = ""
			rec.Decision.Outcome = bourse.OutcomeRefused
			if err := tx.PutOrder(rec); err != nil {
				return err
			}
		}
		for _, next := range []bourse.State{bourse.StateFailed, bourse.StateDestroying, bourse.StateDestroyed} {
			if _, err := changeMachine(tx, m.ID, func(m *bourse.Machine) (bool, []bourse.Event, error) {
				m.State = next
				return true, unlaunched(m, cause), nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

// unlaunched gives the events of a machine that goes from starting to its end
// because it could not be launched, and clears what it took.
func unlaunched(m *bourse.Machine, cause error) []bourse.Event {
	now := time.Now().UTC()
	m.Boot.PID = 0
	switch m.State {
	case bourse.StateFailed:
		m.Boot.Exit = &bourse.Exit{Code: -1, Error: bourse.MessageOf(cause), At: now}
		m.Takes, m.Boot.Port = resting(m.Takes), 0
		return []bourse.Event{{
			Type: bourse.EventExit, State: m.State, Source: bourse.SourceWorker, At: now,
			Exit: &bourse.ExitEvent{Exit: *m.Boot.Exit},
		}}
	case bourse.StateDestroyed:
		m.Takes, m.Lease = nil, nil
		return []bourse.Event{{Type: bourse.EventDestroy, State: m.State, Source: bourse.SourceWorker, At: now}}
	default:
		return nil
	}
}

// prepareStep settles an order's machine that is not launched: a host process
// has nothing to prepare.
func (w *Worker) prepareStep(_ context.Context, r *machineRun) fsm.Outcome {
	return fsm.Done(inTx(func(tx *store.Tx) error {
		prepared, err := changeMachine(tx, r.Request.Machine, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			if m.State != bourse.StateCreated {
				return false, nil, nil // destroyed meanwhile
			}
			m.State = bourse.StateStopped
			return true, []bourse.Event{{Type: bourse.EventPrepare, State: m.State, Source: bourse.SourceWorker}}, nil
		})
		if err != nil {
			return err
		}
		if prepared.LastEvents, err = readEvents(tx, prepared.ID, recentEvents); err != nil {
			return err
		}
		w.applied.put(prepared)
		return nil
	}))
}
