package machine

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newRestart(s *cli.Shell) *cobra.Command {
	var app, signal, timeout string
	var force, detach bool
	var waitTimeout time.Duration
	c := &cobra.Command{
		Use:               "restart MACHINE...",
		Short:             "Restart machines",
		Example:           "  bourse machine restart quiet-river-1234 --timeout 30s",
		Args:              cli.AtLeast(1),
		ValidArgsFunction: completeMachine(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			stop, err := stopRequest(signal, timeout)
			if err != nil {
				return err
			}
			in := machinesapi.RestartMachine{ForceStop: force, Signal: stop.Signal, Timeout: stop.Timeout}
			return forEach(c.Context(), s, app, args, func(id bourse.MachineID) error {
				end := cli.Spin(s.Err, "restarting machine "+string(id))
				err := s.Client().Restart(c.Context(), bourse.AppName(app), id, in, "")
				end()
				if err != nil {
					return err
				}
				if detach {
					return printAction(s, id, machinesapi.OK{OK: true}, "restarting")
				}
				reply, err := wait(c.Context(), s, app, id, []string{string(bourse.StateStarted)}, waitTimeout)
				if err != nil {
					return err
				}
				return printAction(s, id, reply, string(reply.State)+" again")
			})
		},
	}
	s.BindApp(c, &app)
	flags := c.Flags()
	flags.StringVarP(&signal, "signal", "s", "", "`signal` to stop the machine with (default: from its config, or SIGINT)")
	flags.StringVarP(&timeout, "timeout", "t", "", "`time` before SIGKILL is sent, in seconds or as 30s (default: from the machine's config, or 5s)")
	flags.BoolVarP(&force, "force", "f", false, "kill the machine immediately")
	flags.BoolVar(&force, "force-stop", false, "same as --force, for compatibility with flyctl")
	_ = flags.MarkHidden("force-stop") // fails only if the flag does not exist
	waitFlags(c, &detach, &waitTimeout, "started")
	return c
}
