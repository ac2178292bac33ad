package machine

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

func newRelease(s *cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use:               "release RESERVATION...",
		Aliases:           []string{"destroy", "rm"},
		Short:             "Release reservations",
		Example:           "  bourse reservation release 01M7Y71X6AS59JBN7QNQFH8DEW-0a1b2c",
		Args:              cli.AtLeast(1),
		ValidArgsFunction: completeReservation(s),
		RunE: func(c *cobra.Command, args []string) error {
			for _, word := range args {
				id, err := parseID(word)
				if err != nil {
					return err
				}
				if err := s.Client().Reservations().Release(c.Context(), id); err != nil {
					return hintReservation(err)
				}
			}
			return nil
		},
	}
}
