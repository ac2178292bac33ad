package machine

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newReservationExtend(s *cli.Shell) *cobra.Command {
	var ttl time.Duration
	c := &cobra.Command{
		Use:               "extend RESERVATION",
		Short:             "Extend a reservation",
		Example:           "  bourse reservation extend 01M7Y71X6AS59JBN7QNQFH8DEW-0a1b2c --ttl 10m",
		Args:              cli.Exactly(1),
		ValidArgsFunction: completeReservation(s),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := parseID(args[0])
			if err != nil {
				return err
			}
			seconds, err := holdSeconds(ttl)
			if err != nil {
				return err
			}
			r, err := s.Client().Reservations().Extend(c.Context(), id, machinesapi.ExtendReservation{TTLSeconds: &seconds})
			if err != nil {
				return hintReservation(err)
			}
			return printReservation(s, &r)
		},
	}
	bindTTL(c, &ttl)
	return c
}
