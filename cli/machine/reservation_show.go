package machine

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newReservationShow(s *cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use:               "show RESERVATION",
		Aliases:           []string{"status"},
		Short:             "Show a reservation's holds, unused capacity and expiry",
		Example:           "  bourse reservation show 01M7Y71X6AS59JBN7QNQFH8DEW-0a1b2c",
		Args:              cli.Exactly(1),
		ValidArgsFunction: completeReservation(s),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := parseID(args[0])
			if err != nil {
				return err
			}
			r, err := s.Client().Reservations().Get(c.Context(), id)
			if err != nil {
				return hintReservation(err)
			}
			return printReservation(s, &r)
		},
	}
}

func printReservation(s *cli.Shell, r *machinesapi.Reservation) error {
	if s.JSON {
		return s.PrintJSON(r)
	}
	var f cli.Facts
	f.Add("reservation", string(r.ID))
	f.Add("expires", r.ExpiresAt.Local().Format(time.RFC3339)+" (in "+r.ExpiresAt.Sub(s.Now()).Round(time.Second).String()+")")
	f.Add("no longer held by", strings.Join(r.LostWorkers, ", "))
	if err := f.Write(s.Out); err != nil {
		return err
	}
	fmt.Fprintln(s.Out)
	t := cli.NewTable("WORKER", "REGION", "APP", "HELD", "UNUSED", "ORDER").Narrow(5, 3)
	for i := range r.Holds {
		h := &r.Holds[i]
		t.Row(string(h.Worker), string(h.Region), string(h.App), showAmounts(h.Takes), showAmounts(h.Remaining), string(h.OrderID))
	}
	return t.Write(s.Out)
}

func showAmounts(list bourse.Amounts) string {
	parts := make([]string, len(list))
	for i, a := range list {
		name := string(a.Resource)
		switch a.Resource {
		case bourse.ResourceCPU:
			parts[i] = cli.Amount(name, a.Amount)
		case bourse.ResourceMemory, bourse.ResourceDisk:
			parts[i] = cli.Amount(name, a.Amount) + " " + name
		default:
			parts[i] = name + " " + cli.Amount(name, a.Amount)
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
