package worker

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// listRuns returns the runs in progress, and those that ended lately if asked
// for.
func (w *Worker) listRuns(ended bool) ([]fabric.Run, error) {
	runs := []fabric.Run{}
	err := w.store.View(func(tx *store.Tx) error {
		for r, err := range tx.Runs() {
			if err != nil {
				return err
			}
			if ended || !r.Status.Ended() {
				runs = append(runs, showRun(r))
			}
		}
		return nil
	})
	return runs, err
}

func showRun(r fsm.Record) fabric.Run {
	return fabric.Run{
		ID: r.ID, Definition: r.Definition, Resource: r.Resource, Status: string(r.Status), Step: r.Step, Attempt: r.Attempt,
		NotBefore: r.NotBefore, Error: r.Error, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
}

// onRun has the engine do something about a run, and returns the run after it.
func (w *Worker) onRun(do func(context.Context, string) error) func(context.Context, string) (fabric.Run, error) {
	return func(ctx context.Context, id string) (fabric.Run, error) {
		if err := do(ctx, id); err != nil {
			return fabric.Run{}, err
		}
		rec, ok, err := w.store.Journal().Run(id)
		if err == nil && !ok {
			err = bourse.Errorf(bourse.CodeNotFound, "run not found")
		}
		return showRun(rec), err
	}
}
