package machine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newReservationList(s *cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the reservations of the apps that the token may access",
		Example: "  bourse reservation list",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			stop := cli.Spin(s.Err, "asking the workers")
			list, silent, err := s.Client().Reservations().List(c.Context())
			stop()
			if err != nil {
				return err
			}
			s.WarnMissing(silent, "reservations")
			t := cli.NewTable("RESERVATION", "APP", "HOLDS", "EXPIRES IN", "UNUSED", "WORKERS").Numbers(2, 3).Narrow(5, 1).Drop(5, 4, 1)
			return cli.PrintList(s, list, "no reservations; create one with: bourse reservation create", t, func(r *machinesapi.Reservation) []string {
				apps, workers := []string{}, []string{}
				var left bourse.Amounts
				for i := range r.Holds {
					apps, workers = append(apps, string(r.Holds[i].App)), append(workers, string(r.Holds[i].Worker))
					for _, a := range r.Holds[i].Remaining {
						left = left.Plus(a)
					}
				}
				return []string{
					string(r.ID), distinct(apps), fmt.Sprint(len(r.Holds)), r.ExpiresAt.Sub(s.Now()).Round(time.Second).String(), showAmounts(left), distinct(workers),
				}
			})
		},
	}
}

func distinct(words []string) string {
	slices.Sort(words)
	return strings.Join(slices.Compact(words), ", ")
}
