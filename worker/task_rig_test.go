package worker

import (
	"context"
	"strconv"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/tasks/taskstest"
)

type program = taskstest.Program

var (
	newProgram   = taskstest.NewProgram
	newProgramOf = taskstest.NewProgramOf
	call         = taskstest.Call
	within       = taskstest.Within
)

// result claims a task's order, and fails the test unless the order is filled.
func (h *host) result(ctx context.Context, o *bourse.Order) *bourse.TaskResult {
	h.t.Helper()
	fill, refusal, err := h.claim(ctx, &bourse.Claim{Order: *o})
	if err != nil || refusal != nil || fill.Task == nil {
		h.t.Fatalf("claim: %+v, refusal %+v, error %v", fill, refusal, err)
	}
	return fill.Task
}

// slots returns the number of committed slots, once everything submitted to the store
// is durable.
func (h *host) slots() int64 {
	h.t.Helper()
	if err := h.store.Sync(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	var n int64
	if err := h.store.View(func(tx *store.Tx) error {
		committed, err := tx.Committed()
		n = committed.Of("slots")
		return err
	}); err != nil {
		h.t.Fatal(err)
	}
	return n
}

// openTasks returns the orders of tasks that are recorded as in progress.
func (h *host) openTasks() []bourse.OrderID {
	h.t.Helper()
	var out []bourse.OrderID
	if err := h.store.View(func(tx *store.Tx) error {
		for o, err := range tx.OpenTasks() {
			if err != nil {
				return err
			}
			out = append(out, o.ID)
		}
		return nil
	}); err != nil {
		h.t.Fatal(err)
	}
	return out
}

func ended(r *bourse.TaskResult) string {
	return string(r.End) + " " + strconv.Itoa(r.ExitCode) + " " + string(r.Answer)
}
