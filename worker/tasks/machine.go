package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/store"
)

// This file contains the functions that are called for a cold task's machine: Payload before it starts, MachineExited
// when its program exits, and MachineDestroyed when the machine is destroyed.

// Payload returns the payload that m's program reads from stdin, or nil if m does not
// belong to a cold task.
func (t *Tasks) Payload(m *bourse.Machine) (payload []byte, err error) {
	if !m.Config.AutoDestroy { // all tasks' machines have AutoDestroy
		return nil, nil
	}
	err = t.state.Store.View(func(tx *store.Tx) error {
		rec, _, err := tx.Order(m.Order)
		if err == nil && rec.Task != nil && rec.Task.Cold != nil {
			payload = rec.Task.Cold.Payload
		}
		return err
	})
	return payload, err
}

// MachineExited returns a function that records the outcome of m's task. The function must be called in the transaction
// that records the machine's exit. It does nothing if m does not belong to a cold task.
func (t *Tasks) MachineExited(ctx context.Context, m *bourse.Machine, exit bourse.Exit) (func(*store.Tx) error, error) {
	nothing := func(*store.Tx) error { return nil }
	if !m.Config.AutoDestroy {
		return nothing, nil
	}
	rec, err := t.orderRecord(ctx, m.Order)
	if err != nil || rec.Task == nil || !rec.Task.Open() {
		return nothing, err
	}
	result := endedEarly(rec.Task, bourse.TaskAnswered, "")
	result.ExitCode = exit.Code
	switch {
	case exit.Error != "":
		result.End, result.Error = bourse.TaskLost, "its program was lost: "+exit.Error
	case exit.Signal != 0:
		result.End, result.Error = bourse.TaskBroken, fmt.Sprintf("its program was killed by signal %d", exit.Signal)
	case exit.Code != 0:
		result.End, result.Error = bourse.TaskFailed, fmt.Sprintf("its program ended with exit code %d", exit.Code)
	}
	if exit.Error == "" {
		if err := t.readStdout(ctx, m, &result); err != nil {
			return nothing, err
		}
	}
	return func(tx *store.Tx) error {
		ended, err := tx.RecordTaskEnd(m.Order, result, time.Now().UTC())
		if ended {
			t.state.Counts.TaskEnded(result.End)
		}
		return err
	}, nil
}

var errOutputTooLarge = errors.New("too much")

// readStdout fills in the bytes that m's program wrote to stdout.
func (t *Tasks) readStdout(ctx context.Context, m *bourse.Machine, out *bourse.TaskResult) error {
	var answer []byte
	err := t.machines.Logs(ctx, m, driver.LogQuery{}, func(l driver.LogLine) error {
		answer = append(answer, stdoutOf(l)...)
		if len(answer) > bourse.MaxAnswer {
			return errOutputTooLarge
		}
		return nil
	})
	switch {
	case errors.Is(err, errOutputTooLarge):
		out.End, out.Error = bourse.TaskBroken, fmt.Sprintf("its answer has more than %d bytes", bourse.MaxAnswer)
		return nil
	case bourse.CodeOf(err) == bourse.CodeNotFound: // the machine was destroyed at the same time
		out.End, out.ExitCode, out.Error = bourse.TaskLost, -1, "its output was removed with its machine"
		return nil
	}
	out.Answer = answer
	return err
}

// MachineDestroyed records that a cold task was canceled, if its machine m was destroyed before the task had finished.
func (t *Tasks) MachineDestroyed(tx *store.Tx, m *bourse.Machine) error {
	t.counts.forget(m.ID)
	if !m.Config.AutoDestroy {
		return nil
	}
	rec, _, err := tx.Order(m.Order)
	if err != nil || rec.Task == nil || !rec.Task.Open() {
		return err
	}
	_, err = tx.RecordTaskEnd(m.Order, endedEarly(rec.Task, bourse.TaskCanceled, "its machine was destroyed"), time.Now().UTC())
	return err
}
