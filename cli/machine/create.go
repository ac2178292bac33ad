package machine

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/place"
	"github.com/bourse-dev/bourse/machinesapi"
)

// reservationFlags describe what is to be held, and where: those of "machine run" that
// have to do with it.
type reservationFlags struct {
	app, region, id string
	size            place.Size
	require         []string
	count           int64
	ttl, deadline   time.Duration
}

func newReservationCreate(s *cli.Shell) *cobra.Command {
	var f reservationFlags
	c := &cobra.Command{
		Use:   "create [IMAGE] [flags]",
		Short: "Hold capacity for so many machines, or for none of them",
		Long: `Hold capacity for so many machines, on one worker or on several, or for none of
them: then you are told who said no and why. What is held is what such machines
would take. They take it with "machine run --reservation"; what they do not take
is free again when the time is over.

Name an image when only workers that run it will do, and to have the disk of its
root file system held too.`,
		Example: `  bourse reservation create --region gru --vm-memory 2GiB --count 8 --ttl 5m
  bourse reservation create nginx -r gru,mad --require slots=2
  bourse machine run nginx --reservation 01M7Y71X6AS59JBN7QNQFH8DEW-0a1b2c.d4e5f6`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.UsageError(c)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return reserve(c.Context(), s, &f, args) },
	}
	flags := c.Flags()
	s.BindApp(c, &f.app)
	flags.StringVarP(&f.region, "region", "r", "", "`region`, or a list in order of preference such as gru,mad,any (default any)")
	f.size.Bind(flags)
	flags.StringArrayVar(&f.require, "require", nil, "what the worker must have, `NAME=VALUE`: slots=2 takes from a countable, zone=b must equal a label; may be repeated")
	flags.Int64Var(&f.count, "count", 1, "for so `many` machines, 1 to 64")
	bindTTL(c, &f.ttl)
	flags.StringVar(&f.id, "id", "", "`id` of the reservation, a ULID: a repetition with the same id finds what is held")
	flags.DurationVar(&f.deadline, "deadline", 0, "held or refused within this `time` (default 10s, at most half of --ttl)")
	s.CompleteRegions(c)
	cli.CompleteFixed(c, "vm-cpu-kind", string(bourse.CPUShared), string(bourse.CPUPerformance))
	return c
}

func reserve(ctx context.Context, s *cli.Shell, f *reservationFlags, args []string) error {
	req, err := f.request(args)
	if err != nil {
		return err
	}
	stop := cli.Spin(s.Err, "holding capacity for reservation "+string(req.ID))
	r, err := s.Client().Reservations().Create(ctx, req)
	stop()
	switch bourse.CodeOf(err) {
	case "":
		return printReservation(s, &r)
	case bourse.CodeCanceled:
		return cli.Interrupted("interrupted; capacity that is held becomes free after " + f.ttl.String() + "; bourse reservation create --id " + string(req.ID) + " finds the reservation")
	case bourse.CodeTimeout:
		if _, replied := errors.AsType[*machinesapi.ReplyError](err); replied { // its deadline passed, and nothing is held
			return cli.Hint(err, "a longer --deadline")
		}
		return cli.Hint(err, "the same command with --id "+string(req.ID)+", which finds the reservation")
	default:
		return place.Explain(s, err, f.app, bourse.OrderID(req.ID))
	}
}

// request makes the API's request of the flags and arguments.
func (f *reservationFlags) request(args []string) (machinesapi.CreateReservation, error) {
	var req machinesapi.CreateReservation
	seconds, err := holdSeconds(f.ttl)
	if err != nil {
		return req, err
	}
	if f.count < 1 || f.count > bourse.MaxReservedOrders {
		return req, bourse.Errorf(bourse.CodeInvalid, "--count %d: use 1 to %d", f.count, bourse.MaxReservedOrders)
	}
	if f.deadline < 0 || f.deadline > bourse.MaxWithin {
		return req, bourse.Errorf(bourse.CodeInvalid, "--deadline %s: use up to %s", f.deadline, bourse.MaxWithin)
	}
	config := &bourse.Config{}
	if len(args) > 0 {
		config.Image = args[0]
	}
	if config.Guest, err = f.size.Guest(); err != nil {
		return req, err
	}
	if config.Requirements, err = place.ParseRequirements(f.require); err != nil {
		return req, cli.FlagError("--require", err)
	}
	req = machinesapi.CreateReservation{
		ID: bourse.ReservationKey(f.id), TTLSeconds: &seconds, Deadline: bourse.Duration(f.deadline),
		Orders: []machinesapi.ReserveOrder{{App: bourse.AppName(f.app), Region: f.region, Config: config, Count: &f.count}},
	}
	if f.id == "" {
		req.ID = bourse.NewReservationKey() // chosen here, so that the request can be repeated if its reply is lost
	} else if err := req.ID.Validate(); err != nil {
		return req, cli.FlagError("--id", err)
	}
	normal := *config // the request keeps what was typed: the broker normalizes again
	return req, normal.NormalizeHeld()
}
