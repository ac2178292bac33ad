package machine

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newDestroy(s *cli.Shell) *cobra.Command {
	var app string
	var force, yes bool
	c := &cobra.Command{
		Use:               "destroy MACHINE...",
		Aliases:           []string{"rm", "delete"},
		Short:             "Permanently destroy machines",
		Example:           "  bourse machine destroy quiet-river-1234 --force --yes",
		Args:              cli.AtLeast(1),
		ValidArgsFunction: completeMachine(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			if !force && !yes && s.Interactive() {
				if err := forEach(c.Context(), s, app, args, checkDestroyable(c.Context(), s, app, yes)); err != nil {
					return err
				}
			}
			if err := s.Confirm(c.Context(), yes, "destroy "+strings.Join(args, ", ")); err != nil {
				return err
			}
			return forEach(c.Context(), s, app, args, func(id bourse.MachineID) error {
				end := cli.Spin(s.Err, "destroying machine "+string(id))
				err := s.Client().Destroy(c.Context(), bourse.AppName(app), id, machinesapi.DestroyMachine{Force: force}, "")
				end()
				if bourse.CodeOf(err) == bourse.CodeFailedPrecondition && !force {
					return stillRunning(app, id, yes, err)
				}
				if err != nil {
					return err
				}
				return printAction(s, id, machinesapi.OK{OK: true}, "destroyed")
			})
		},
	}
	s.BindApp(c, &app)
	c.Flags().BoolVarP(&force, "force", "f", false, "also destroy running machines")
	cli.BindYes(c, &yes)
	return c
}

// checkDestroyable returns a function that returns an error if a worker would refuse to
// destroy the machine. The command calls the function before it asks for confirmation.
func checkDestroyable(ctx context.Context, s *cli.Shell, app string, yes bool) func(bourse.MachineID) error {
	return func(id bourse.MachineID) error {
		m, err := s.Client().Machine(ctx, bourse.AppName(app), id)
		if err != nil {
			return err
		}
		switch m.State {
		case bourse.StateStarting, bourse.StateStarted, bourse.StateSuspending, bourse.StateStopping, bourse.StateRestarting, bourse.StateReplacing:
			return stillRunning(app, id, yes, bourse.Errorf(bourse.CodeFailedPrecondition, "it is %s", m.State))
		case bourse.StateCreated, bourse.StateSuspended, bourse.StateStopped, bourse.StateFailed, bourse.StateDestroying, bourse.StateDestroyed:
		}
		return nil
	}
}

// stillRunning adds a hint about --force to an error about a running machine.
func stillRunning(app string, id bourse.MachineID, yes bool, err error) error {
	return cli.Hint(withMachine(id, err), "bourse machine destroy"+appFlag(bourse.AppName(app))+" "+string(id)+" --force"+cli.YesFlag(yes))
}
