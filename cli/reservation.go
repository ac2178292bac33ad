package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func (s *shell) reservation() *cobra.Command {
	c := noun("reservation", "Hold capacity for machines to come, for all of them or for none",
		s.reservationCreate(), s.reservationShow(), s.reservationExtend(), s.reservationRelease())
	c.Aliases = []string{"reservations"}
	return c
}

func (s *shell) reservationShow() *cobra.Command {
	return &cobra.Command{
		Use:     "show RESERVATION",
		Aliases: []string{"status"},
		Short:   "Show what is held where, what is left of it, and until when",
		Args:    exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := reservationID(args[0])
			if err != nil {
				return err
			}
			r, err := s.client().Reservation(c.Context(), id)
			if err != nil {
				return aboutReservation(err)
			}
			return s.printReservation(&r)
		},
	}
}

func (s *shell) reservationExtend() *cobra.Command {
	var ttl time.Duration
	c := &cobra.Command{
		Use:     "extend RESERVATION",
		Short:   "Make all that is held end so long from now",
		Example: "  bourse reservation extend 01M7Y71X6AS59JBN7QNQFH8DEW-0a1b2c --ttl 10m",
		Args:    exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := reservationID(args[0])
			if err != nil {
				return err
			}
			seconds, err := holdSeconds(ttl)
			if err != nil {
				return err
			}
			r, err := s.client().ExtendReservation(c.Context(), id, machinesapi.ExtendReservation{TTLSeconds: &seconds})
			if err != nil {
				return aboutReservation(err)
			}
			return s.printReservation(&r)
		},
	}
	bindTTL(c, &ttl)
	return c
}

func (s *shell) reservationRelease() *cobra.Command {
	return &cobra.Command{
		Use:     "release RESERVATION...",
		Aliases: []string{"destroy", "rm"},
		Short:   "Give back what is held",
		Args:    atLeast(1),
		RunE: func(c *cobra.Command, args []string) error {
			for _, word := range args {
				id, err := reservationID(word)
				if err != nil {
					return err
				}
				if err := s.client().ReleaseReservation(c.Context(), id); err != nil {
					return aboutReservation(err)
				}
			}
			return nil
		},
	}
}

func bindTTL(c *cobra.Command, ttl *time.Duration) {
	c.Flags().DurationVar(ttl, "ttl", bourse.DefaultHold, "hold it so `long`, 1s to 1h; a part of a second counts as one")
}

func holdSeconds(ttl time.Duration) (int64, error) {
	seconds := secondsUp(ttl)
	if err := bourse.ValidateHold(time.Duration(seconds) * time.Second); err != nil || ttl > bourse.MaxHold {
		return 0, bourse.Errorf(bourse.CodeInvalid, "--ttl %s: use %s to %s", ttl, bourse.MinHold, bourse.MaxHold)
	}
	return seconds, nil
}

func reservationID(word string) (bourse.ReservationID, error) {
	id := bourse.ReservationID(word)
	return id, id.Validate()
}

// aboutReservation adds to an error from the API what to try.
func aboutReservation(err error) error {
	switch bourse.CodeOf(err) {
	case bourse.CodeNotFound, bourse.CodeConflict:
		return hint(err, "a new one: bourse reservation create")
	case bourse.CodeTimeout:
		return hint(err, "the same again: it may be repeated")
	default:
		return err
	}
}

func (s *shell) printReservation(r *machinesapi.Reservation) error {
	if s.json {
		return s.printJSON(r)
	}
	var f facts
	f.add("reservation", string(r.ID))
	f.add("ends", r.ExpiresAt.Local().Format("2006-01-02 15:04:05")+" (in "+r.ExpiresAt.Sub(s.Now()).Round(time.Second).String()+")")
	f.add("gone", strings.Join(r.Gone, ", "))
	if err := f.write(s.Out); err != nil {
		return err
	}
	fmt.Fprintln(s.Out)
	t := newTable("WORKER", "REGION", "APP", "HELD", "LEFT", "ORDER").narrow(5, 3)
	for i := range r.Holds {
		h := &r.Holds[i]
		t.row(string(h.Worker), string(h.Region), string(h.App), showAmounts(h.Takes), showAmounts(h.Left), string(h.OrderID))
	}
	return t.write(s.Out, s.Out.Width)
}

func showAmounts(list bourse.Amounts) string {
	parts := make([]string, len(list))
	for i, a := range list {
		name := string(a.Resource)
		switch a.Resource {
		case bourse.ResourceCPU:
			parts[i] = amount(name, a.Amount)
		case bourse.ResourceMemory, bourse.ResourceDisk:
			parts[i] = amount(name, a.Amount) + " " + name
		default:
			parts[i] = name + " " + amount(name, a.Amount)
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
