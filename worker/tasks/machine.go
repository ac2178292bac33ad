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

// What the machine of a cold task asks in its life: its program's payload before
// it starts, and how the task ended when the program, or the machine, does.

// Payload returns what m's program reads on stdin: nothing, unless the
// machine is a task's.
func (t *Tasks) Payload(m *bourse.Machine) (payload []byte, err error) {
	if !m.Config.AutoDestroy { // all of tasks are
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

// Ended returns what is recorded of a task beside the exit of its machine m:
// nothing, unless m is a task's.
func (t *Tasks) Ended(ctx context.Context, m *bourse.Machine, exit bourse.Exit) (func(*store.Tx) error, error) {
	nothing := func(*store.Tx) error { return nil }
	if !m.Config.AutoDestroy {
		return nothing, nil
	}
	rec, err := t.orderRecord(ctx, m.Order)
	if err != nil || rec.Task == nil || !rec.Task.Open() {
		return nothing, err
	}
	result := coldCut(rec.Task, bourse.TaskAnswered, "")
	result.ExitCode = exit.Code
	switch {
	case exit.Error != "":
		result.End, result.Error = bourse.TaskLost, "its program was lost: "+exit.Error
	case exit.Signal != 0:
		result.End, result.Error = bourse.TaskBroken, fmt.Sprintf("its program was ended by signal %d", exit.Signal)
	case exit.Code != 0:
		result.End, result.Error = bourse.TaskFailed, fmt.Sprintf("its program ended with exit code %d", exit.Code)
	}
	if exit.Error == "" {
		if err := t.readStdout(ctx, m, &result); err != nil {
			return nothing, err
		}
	}
	return func(tx *store.Tx) error {
		ended, err := tx.TaskEnded(m.Order, result, time.Now().UTC())
		if ended {
			t.state.Counts.TaskEnded(result.End)
		}
		return err
	}, nil
}

var errTooMuch = errors.New("too much")

// readStdout fills in what m's program has written to stdout, byte for byte.
func (t *Tasks) readStdout(ctx context.Context, m *bourse.Machine, out *bourse.TaskResult) error {
	var answer []byte
	err := t.machines.Logs(ctx, m, driver.LogQuery{}, func(l driver.LogLine) error {
		answer = append(answer, stdoutOf(l)...)
		if len(answer) > bourse.MaxAnswer {
			return errTooMuch
		}
		return nil
	})
	switch {
	case errors.Is(err, errTooMuch):
		out.End, out.Error = bourse.TaskBroken, fmt.Sprintf("its answer has more than %d bytes", bourse.MaxAnswer)
		return nil
	case bourse.CodeOf(err) == bourse.CodeNotFound: // destroyed in the same moment
		out.End, out.ExitCode, out.Error = bourse.TaskLost, -1, "what it wrote is gone with its machine"
		return nil
	}
	out.Answer = answer
	return err
}

// Gone ends the task of a machine that is gone without an end of its own.
func (t *Tasks) Gone(tx *store.Tx, m *bourse.Machine) error {
	t.tally.forget(m.ID)
	if !m.Config.AutoDestroy {
		return nil
	}
	rec, _, err := tx.Order(m.Order)
	if err != nil || rec.Task == nil || !rec.Task.Open() {
		return err
	}
	_, err = tx.TaskEnded(m.Order, coldCut(rec.Task, bourse.TaskCanceled, "its machine was destroyed"), time.Now().UTC())
	return err
}
