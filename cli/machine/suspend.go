package machine

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newSuspend(s *cli.Shell) *cobra.Command {
	var app string
	var detach bool
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "suspend MACHINE...",
		Short: "Freeze running machines until they are started again",
		Long: `Freeze machines. A suspended machine keeps its memory and its capacity on its
worker, but uses no CPU time. "machine start" resumes it immediately. If its host
restarts, the machine is stopped.`,
		Example:           "  bourse machine suspend quiet-river-1234\n  bourse machine start quiet-river-1234",
		Args:              cli.AtLeast(1),
		ValidArgsFunction: completeMachine(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			return forEach(c.Context(), s, app, args, func(id bourse.MachineID) error {
				if err := s.Client().Suspend(c.Context(), bourse.AppName(app), id, ""); err != nil {
					return err
				}
				if detach {
					return printAction(s, id, machinesapi.OK{OK: true}, "suspending")
				}
				reply, err := wait(c.Context(), s, app, id, []string{string(bourse.StateSuspended)}, timeout)
				if err != nil {
					return err
				}
				return printAction(s, id, reply, string(reply.State))
			})
		},
	}
	s.BindApp(c, &app)
	waitFlags(c, &detach, &timeout, "suspended")
	return c
}
