package machine

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// completeOrder completes a command's first argument with the orders that the broker
// decided recently.
func completeOrder(s *cli.Shell) cobra.CompletionFunc {
	return cli.Complete(func(ctx context.Context) ([]cobra.Completion, error) {
		list, err := s.Client().Orders(ctx)
		out := make([]cobra.Completion, len(list))
		for i, d := range list {
			out[i] = cobra.CompletionWithDesc(string(d.Order), string(d.Outcome)+", app "+string(d.App))
		}
		return out, err
	})
}
