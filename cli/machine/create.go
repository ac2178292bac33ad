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

// reservationFlags are the flags of "reservation create". They include those flags of
// "machine run" that affect placement.
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
		Short: "Reserve capacity for machines",
		Long: `Hold capacity for a number of machines on one or more workers. If there is not
enough capacity for all of them, nothing is held and you are told why each worker
refused. To use the capacity, run "machine run --reservation". Capacity that is
still unused when the reservation expires is released.

Name an image to consider only workers that can run it, and to hold the disk of
its root file system too.`,
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
	flags.StringVarP(&f.region, "region", "r", "", "`region`, or a list in order of preference such as gru,mad,any (default: any)")
	f.size.Bind(flags)
	flags.StringArrayVar(&f.require, "require", nil, "requirement on the worker, `NAME=VALUE`: slots=2 takes 2 of a countable resource, zone=b requires a label; may be repeated")
	flags.Int64Var(&f.count, "count", 1, "`number` of machines, 1 to 64")
	bindTTL(c, &f.ttl)
	flags.StringVar(&f.id, "id", "", "`id` of the reservation, a ULID; repeating the command with the same id returns the same reservation")
	flags.DurationVar(&f.deadline, "deadline", 0, "`time` within which the capacity is held or refused (default: 10s, but at most half of --ttl)")
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
		return cli.Interrupted("interrupted; any held capacity is released after " + f.ttl.String() + "; bourse reservation create --id " + string(req.ID) + " shows the reservation")
	case bourse.CodeTimeout:
		if _, replied := errors.AsType[*machinesapi.ReplyError](err); replied { // the deadline has passed, so nothing is held
			return cli.Hint(err, "a longer --deadline")
		}
		return cli.Hint(err, "the same command with --id "+string(req.ID)+", which shows the reservation")
	default:
		return place.Explain(s, err, f.app, bourse.OrderID(req.ID))
	}
}

// request builds the API request from the flags and arguments.
func (f *reservationFlags) request(args []string) (machinesapi.CreateReservation, error) {
	var req machinesapi.CreateReservation
	seconds, err := holdSeconds(f.ttl)
	if err != nil {
		return req, err
	}
	if f.count < 1 || f.count > bourse.MaxReservedOrders {
		return req, bourse.Errorf(bourse.CodeInvalid, "--count %d: use 1 to %d", f.count, bourse.MaxReservedOrders)
	}
	if f.deadline < 0 || f.deadline > bourse.MaxOrderTimeout {
		return req, bourse.Errorf(bourse.CodeInvalid, "--deadline %s: use up to %s", f.deadline, bourse.MaxOrderTimeout)
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
		req.ID = bourse.NewReservationKey() // chosen by the client, so that the request can be repeated if its reply is lost
	} else if err := req.ID.Validate(); err != nil {
		return req, cli.FlagError("--id", err)
	}
	normal := *config // validate a copy, because the broker normalizes the request itself
	return req, normal.NormalizeHeld()
}
