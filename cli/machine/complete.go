package machine

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// completeMachine completes a command's first argument with the names and ids of the app's
// machines.
func completeMachine(s *cli.Shell, app *string) cobra.CompletionFunc {
	return cli.Complete(func(ctx context.Context) ([]cobra.Completion, error) {
		list, _, err := s.Client().Machines(ctx, bourse.AppName(*app), machinesapi.ListMachines{})
		var out []cobra.Completion
		for _, m := range list {
			what := string(m.State) + " in " + string(m.Region)
			out = append(out, cobra.CompletionWithDesc(m.Name, what), cobra.CompletionWithDesc(string(m.ID), m.Name+", "+what))
		}
		return out, err
	})
}
