package machine

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

// completeVolume completes a command's first argument with the names and ids of the app's
// volumes.
func completeVolume(s *cli.Shell, app *string) cobra.CompletionFunc {
	return cli.Complete(func(ctx context.Context) ([]cobra.Completion, error) {
		list, _, err := s.Client().Volumes(bourse.AppName(*app)).List(ctx)
		var out []cobra.Completion
		for _, v := range list {
			what := string(v.State) + " in " + string(v.Region)
			out = append(out, cobra.CompletionWithDesc(v.Name, what), cobra.CompletionWithDesc(string(v.ID), v.Name+", "+what))
		}
		return out, err
	})
}
