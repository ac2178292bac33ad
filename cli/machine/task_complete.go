package machine

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// completeTask completes a command's first argument with the names of tasks for which the
// app's machines are warm.
func completeTask(s *cli.Shell, app *string) cobra.CompletionFunc {
	return cli.Complete(func(ctx context.Context) ([]cobra.Completion, error) {
		list, _, err := s.Client().Machines(ctx, bourse.AppName(*app), machinesapi.ListMachines{})
		var out []cobra.Completion
		for _, m := range list {
			if c := m.Known(); c != nil && c.Task != nil {
				out = append(out, c.Task.Name)
			}
		}
		slices.Sort(out)
		return slices.Compact(out), err
	})
}
