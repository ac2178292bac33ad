package tasks

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// lostBatch is the maximum number of lost tasks that recovery records in one
// transaction.
const lostBatch = 256

// Recover finds the calls that an earlier daemon did not finish, records them as lost, and releases their resources.
// The calls are not repeated, because programs may already have done the work (invariant 7). All places on warm
// machines are free again: when the earlier daemon died, the calls' connections were closed, which programs treat as a
// cancellation. Recover also continues to wait for cold tasks.
func (t *Tasks) Recover(ctx context.Context) error {
	lost := 0
	for {
		n := 0
		now := time.Now().UTC()
		err := t.state.Store.Update(ctx, func(tx *store.Tx) error {
			open, err := lostTasks(tx, lostBatch)
			for _, result := range open {
				result.End, result.ExitCode, result.Took = bourse.TaskLost, -1, now.Sub(result.StartedAt)
				result.Error = "the worker was restarted during the task"
				if _, err := tx.RecordTaskEnd(result.Order, result, now); err != nil {
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
		t.state.Log.Warn("unfinished tasks lost", "tasks", lost)
	}
	return nil
}

// lostTasks returns the stored records of up to limit calls that were in progress when the previous daemon stopped. It
// skips cold tasks.
func lostTasks(tx *store.Tx, limit int) ([]bourse.TaskResult, error) {
	var out []bourse.TaskResult
	for o, err := range tx.OpenTasks() {
		if err != nil {
			return nil, err
		}
		if o.Task.Cold == nil {
			if out = append(out, o.Task.Result); len(out) == limit {
				break
			}
		}
	}
	return out, nil
}

// Decision returns those parts of the decision about a task's order that the task's record contains. The complete
// decision is stored only by the broker that made it.
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
