package machine

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// completeReservation completes a command's first argument with the ids of current
// reservations.
func completeReservation(s *cli.Shell) cobra.CompletionFunc {
	return cli.Complete(func(ctx context.Context) ([]cobra.Completion, error) {
		list, _, err := s.Client().Reservations().List(ctx)
		out := make([]cobra.Completion, len(list))
		for i, r := range list {
			out[i] = cobra.CompletionWithDesc(string(r.ID), strconv.Itoa(len(r.Holds))+" held")
		}
		return out, err
	})
}
