package cluster

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newRuns(s *cli.Shell) *cobra.Command {
	var ended bool
	c := &cobra.Command{
		Use:   "runs WORKER",
		Short: "Show a worker's durable runs: operations in progress or stuck",
		Example: `  bourse worker runs gru-1
  bourse worker runs retry gru-1 01JD3V7K7Y5C5ZQ7W1R2M3N4P5`,
		Args:              cli.Exactly(1),
		ValidArgsFunction: complete(s),
		RunE: func(c *cobra.Command, args []string) error {
			runs, err := s.Client().Runs(c.Context(), bourse.WorkerID(args[0]), ended)
			if bourse.CodeOf(err) == bourse.CodeNotFound {
				return cli.Hint(err, "bourse worker list")
			}
			if err != nil {
				return err
			}
			if s.JSON {
				if runs == nil {
					runs = []machinesapi.Run{}
				}
				return s.PrintJSON(machinesapi.RunList{Runs: runs})
			}
			return printRuns(s, runs, ended)
		},
	}
	c.Flags().BoolVar(&ended, "all", false, "also show finished runs that the worker still stores")
	c.AddCommand(
		newRunVerb(s, "Retry a stuck run's current step", machinesapi.RunRetry),
		newRunVerb(s, "Skip a stuck run's current step", machinesapi.RunSkip),
		newRunVerb(s, "Cancel a run", machinesapi.RunCancel),
	)
	return c
}

func newRunVerb(s *cli.Shell, short string, act machinesapi.RunVerb) *cobra.Command {
	verb := string(act)
	var yes bool
	c := &cobra.Command{
		Use:               verb + " WORKER RUN",
		Short:             short,
		Example:           "  bourse worker runs " + verb + " gru-1 01JD3V7K7Y5C5ZQ7W1R2M3N4P5",
		Args:              cli.Exactly(2),
		ValidArgsFunction: complete(s),
		RunE: func(c *cobra.Command, args []string) error {
			if act != machinesapi.RunRetry {
				if err := s.Confirm(c.Context(), yes, verb+" run "+args[1]+" of worker "+args[0]); err != nil {
					return err
				}
			}
			run, err := s.Client().ActOnRun(c.Context(), bourse.WorkerID(args[0]), args[1], act)
			if err != nil {
				return cli.Hint(err, "bourse worker runs --all "+args[0])
			}
			if s.JSON {
				return s.PrintJSON(run)
			}
			return printRuns(s, []machinesapi.Run{run}, true)
		},
	}
	if act != machinesapi.RunRetry {
		cli.BindYes(c, &yes)
	}
	return c
}

func printRuns(s *cli.Shell, runs []machinesapi.Run, ended bool) error {
	if len(runs) == 0 {
		if ended {
			s.Note("no runs")
		} else {
			s.Note("no runs are in progress")
		}
		return nil
	}
	t := cli.NewTable("RUN", "OPERATION", "RESOURCE", "STATUS", "STEP", "AGE", "ERROR").Numbers(5).Narrow(6, 2)
	for _, r := range runs {
		step := r.Step
		if r.Attempt > 0 {
			step += fmt.Sprintf(" (%d failed)", r.Attempt)
		}
		t.Row(r.ID, r.Definition, r.Resource, r.Status, cmp.Or(step, "-"), cli.Age(s.Now().Sub(r.CreatedAt)), r.Error)
	}
	return t.Write(s.Out)
}
