package tasks

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// lostBatch bounds how many lost tasks one transaction of the recovery ends.
const lostBatch = 256

// Recover ends the calls that an earlier daemon was in the middle of:
// whether their programs have finished is not known, so they are lost, and not
// begun again (invariant 7). What they took is given back. Their warm machines
// go on, with all places free: the daemon's end has cut the connections of its
// calls, as a cancellation does.
func (t *Tasks) Recover(ctx context.Context) error {
	lost := 0
	for {
		n := 0
		now := time.Now().UTC()
		err := t.state.Store.Update(ctx, func(tx *store.Tx) error {
			open, err := lostTasks(tx, lostBatch)
			for _, result := range open {
				result.End, result.ExitCode, result.Took = bourse.TaskLost, -1, now.Sub(result.StartedAt)
				result.Error = "the worker was restarted in the middle of it"
				if _, err := tx.TaskEnded(result.Order, result, now); err != nil {
					return err
				}
			}
			n = len(open)
			return err
		})
		if err != nil {
			return err
		}
		if lost += n; n < lostBatch {
			break
		}
	}
	if err := t.resumeCold(); err != nil {
		return err
	}
	if lost > 0 {
		for range lost {
			t.state.Counts.TaskEnded(bourse.TaskLost)
		}
		t.state.Log.Warn("tasks were lost in the middle", "tasks", lost)
	}
	return nil
}

// lostTasks returns at most most calls that are in progress by their records.
func lostTasks(tx *store.Tx, most int) ([]bourse.TaskResult, error) {
	var out []bourse.TaskResult
	for o, err := range tx.OpenTasks() {
		if err != nil {
			return nil, err
		}
		if o.Task.Cold == nil {
			if out = append(out, o.Task.Result); len(out) == most {
				break
			}
		}
	}
	return out, nil
}

// Decision returns the decision of a task as far as its worker knows it. All of
// it is in the memory of the broker that decided.
func Decision(rec *store.OrderRecord) bourse.Decision {
	r := &rec.Task.Result
	d := bourse.Decision{
		Order: rec.ID, App: rec.Task.App, Regions: []bourse.Choice{{r.Region}}, At: r.StartedAt, Outcome: bourse.OutcomeFilled,
		Worker: r.Worker, Machine: r.Machine, Times: bourse.Times{Start: r.Took, Total: r.Took}, Message: r.Error,
	}
	if r.End == bourse.TaskCanceled {
		d.Outcome = bourse.OutcomeCanceled
	}
	return d
}
