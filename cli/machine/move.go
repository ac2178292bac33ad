package machine

import (
	"cmp"
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/plans"
	"github.com/bourse-dev/bourse/deploy"

	execute "github.com/bourse-dev/bourse/deploy/run"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newMove(s *cli.Shell) *cobra.Command {
	var app, region, to string
	var only, yes bool
	var options deploy.MoveOptions
	c := &cobra.Command{
		Use:   "move MACHINE",
		Short: "Move a machine to another region or off a cordoned worker",
		Long: `Replace a machine with a new one in another place. The machine is destroyed once
its replacement is ready and receives requests. The replacement has another id and
name. If the machine has a volume, the machine is stopped, the volume is copied,
and the replacement mounts the copy.

Without --region, the replacement is placed in the same region. The machine's
worker must then be cordoned, because the replacement might otherwise be placed on
it again. With --to, only the given worker is considered. The replacement may still
be moved to another worker later.`,
		Example: `  bourse machine move quiet-river-1234 --region mad
  bourse machine move quiet-river-1234 --to gru-2
  bourse worker cordon gru-1 && bourse machine move -a shop quiet-river-1234 --yes`,
		Args:              cli.Exactly(1),
		ValidArgsFunction: completeMachine(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := resolve(c.Context(), s, app, args[0])
			if err != nil {
				return err
			}
			options.Region, options.To = bourse.Region(region), bourse.WorkerID(to)
			plan, err := planMove(c.Context(), s, app, id, options)
			if err != nil {
				return about(err, app, id)
			}
			title := "move of " + string(id)
			if only {
				if s.JSON {
					return s.PrintJSON(plan)
				}
				return plans.Print(s, plan, plans.Fits(c.Context(), s.Client(), plan))
			}
			if to != "" { // check the target before changing anything
				if err := fitsOn(plans.Fits(c.Context(), s.Client(), plan), options.To); err != nil {
					return err
				}
			}
			if err := s.Confirm(c.Context(), yes, "move machine "+string(id)+", and destroy it once its replacement is ready"); err != nil {
				return err
			}
			carrier := plans.Executor{Shell: s, API: execute.NewAPI(s.Client(), bourse.AppName(app)), Title: title, Options: execute.Options{Owner: title}}
			_, err = carrier.Execute(c.Context(), plan)
			return err
		},
	}
	s.BindApp(c, &app)
	flags := c.Flags()
	flags.StringVarP(&region, "region", "r", "", "`region` to move the machine to")
	flags.StringVar(&to, "to", "", "`worker` to move the machine to; no other is considered")
	flags.BoolVar(&only, "plan", false, "show the plan without carrying it out")
	cli.BindYes(c, &yes)
	flags.BoolVar(&options.Downtime, "allow-downtime", false, "move the machine even if no other machine of its group can serve while its volume is copied")
	s.CompleteRegions(c)
	return c
}

// toWorker checks the target worker and sets options.Region to its region.
func toWorker(ctx context.Context, s *cli.Shell, options *deploy.MoveOptions) error {
	w, err := s.Client().Worker(ctx, options.To)
	switch {
	case bourse.CodeOf(err) == bourse.CodeForbidden: // app tokens cannot read workers; rely on the quote
		return nil
	case bourse.CodeOf(err) == bourse.CodeNotFound:
		return cli.Hint(err, "bourse worker list")
	case err != nil:
		return err
	case w.Facts == nil:
		return bourse.Errorf(bourse.CodeUnavailable, "worker %s is %s", w.ID, w.Status)
	case options.Region != "" && options.Region != w.Facts.Region:
		return bourse.Errorf(bourse.CodeInvalid, "worker %s is in %s, not in %s: leave out --region", w.ID, w.Facts.Region, options.Region)
	}
	options.Region = w.Facts.Region
	return nil
}

// fitsOn returns nil if the worker would accept the machine; otherwise it returns the
// worker's refusal.
func fitsOn(fits []plans.Fit, worker bourse.WorkerID) error {
	short := plans.FirstWithoutRoom(fits)
	if short == nil {
		return nil
	}
	for _, r := range short.Refusals {
		if r.Worker == worker {
			err := bourse.Errorf(bourse.CodeInsufficient, "worker %s does not accept the machine: %s; nothing was changed", worker, r.Detail)
			return cli.Hint(err, cli.AfterRefusals([]bourse.Refusal{r})...)
		}
	}
	return plans.NoRoomError(fits)
}

// planMove plans the move of one machine. Errors: failed_precondition if the machine cannot
// be moved, or might be placed on its current worker again.
func planMove(ctx context.Context, s *cli.Shell, app string, id bourse.MachineID, options deploy.MoveOptions) (*deploy.Plan, error) {
	if options.To != "" {
		if err := toWorker(ctx, s, &options); err != nil {
			return nil, err
		}
	}
	list, err := listMachines(ctx, s, app)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(m machinesapi.Machine) bool { return m.ID == id })
	if i < 0 {
		return nil, bourse.Errorf(bourse.CodeNotFound, "machine %s not found", id)
	}
	if options.To != "" {
		options.Region = cmp.Or(options.Region, list[i].Region)
	}
	end := cli.Spin(s.Err, "looking up its volumes and worker")
	defer end()
	volumes, _, err := s.Client().Volumes(bourse.AppName(app)).List(ctx)
	if err != nil {
		return nil, err
	}
	moves := deploy.PlanMoves(&deploy.State{App: bourse.AppName(app), Machines: list, Volumes: volumes}, []bourse.MachineID{id}, options)
	if len(moves.Unmovable) > 0 {
		return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s cannot be moved: %s", id, moves.Unmovable[0].Why)
	}
	if options.To != "" || options.Region != "" && options.Region != list[i].Region {
		return &moves.Plan, nil
	}
	w, err := s.Client().Worker(ctx, list[i].Worker)
	switch {
	case bourse.CodeOf(err) == bourse.CodeForbidden: // without permission to read workers, the cordon cannot be checked
		return &moves.Plan, nil
	case err != nil:
		return nil, err
	case w.Facts == nil || w.Facts.Cordon == nil:
		err := bourse.Errorf(bourse.CodeFailedPrecondition, "worker %s accepts orders, so the replacement might be placed on it again", w.ID)
		return nil, cli.Hint(err, "bourse worker cordon "+string(w.ID), "another --region")
	}
	return &moves.Plan, nil
}
