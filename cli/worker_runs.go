package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func (s *shell) workerRuns() *cobra.Command {
	var ended bool
	c := &cobra.Command{
		Use:   "runs WORKER",
		Short: "Show a worker's durable runs: what it is doing, and what is stuck",
		Example: `  bourse worker runs gru-1
  bourse worker runs retry gru-1 01JD3V7K7Y5C5ZQ7W1R2M3N4P5`,
		Args:              exactly(1),
		ValidArgsFunction: s.completeWorker,
		RunE: func(c *cobra.Command, args []string) error {
			runs, err := s.client().Runs(c.Context(), bourse.WorkerID(args[0]), ended)
			if bourse.CodeOf(err) == bourse.CodeNotFound {
				return hint(err, "bourse worker list")
			}
			if err != nil {
				return err
			}
			if s.json {
				if runs == nil {
					runs = []machinesapi.Run{}
				}
				return s.printJSON(machinesapi.RunList{Runs: runs})
			}
			return s.printRuns(runs, ended)
		},
	}
	c.Flags().BoolVar(&ended, "all", false, "ended runs, too, while they are remembered")
	client := s.client
	c.AddCommand(
		s.actOnRun("retry", "Let a stuck run try its step again", func(ctx context.Context, w bourse.WorkerID, run string) (machinesapi.Run, error) {
			return client().RetryRun(ctx, w, run)
		}),
		s.actOnRun("skip", "Let a stuck run go on behind its step", func(ctx context.Context, w bourse.WorkerID, run string) (machinesapi.Run, error) {
			return client().SkipRun(ctx, w, run)
		}),
		s.actOnRun("cancel", "End a run", func(ctx context.Context, w bourse.WorkerID, run string) (machinesapi.Run, error) {
			return client().CancelRun(ctx, w, run)
		}),
	)
	return c
}

func (s *shell) actOnRun(verb, short string, act func(context.Context, bourse.WorkerID, string) (machinesapi.Run, error)) *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:               verb + " WORKER RUN",
		Short:             short,
		Args:              exactly(2),
		ValidArgsFunction: s.completeWorker,
		RunE: func(c *cobra.Command, args []string) error {
			if verb != "retry" {
				if err := s.confirm(c.Context(), yes, verb+" run "+args[1]+" of worker "+args[0]); err != nil {
					return err
				}
			}
			run, err := act(c.Context(), bourse.WorkerID(args[0]), args[1])
			if err != nil {
				return hint(err, "bourse worker runs --all "+args[0])
			}
			if s.json {
				return s.printJSON(run)
			}
			return s.printRuns([]machinesapi.Run{run}, true)
		},
	}
	if verb != "retry" {
		c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	}
	return c
}

func (s *shell) printRuns(runs []machinesapi.Run, ended bool) error {
	if len(runs) == 0 {
		if ended {
			s.say("no runs are remembered")
		} else {
			s.say("nothing is under way")
		}
		return nil
	}
	t := newTable("RUN", "WHAT", "RESOURCE", "STATUS", "STEP", "AGE", "ERROR").numbers(5).narrow(6, 2)
	for _, r := range runs {
		step := r.Step
		if r.Attempt > 0 {
			step += fmt.Sprintf(" (%d failed)", r.Attempt)
		}
		t.row(r.ID, r.Definition, r.Resource, r.Status, dash(step), age(s.Now().Sub(r.CreatedAt)), r.Error)
	}
	return t.write(s.Out, s.Out.Width)
}
