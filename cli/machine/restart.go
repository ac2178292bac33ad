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
	var patience time.Duration
	c := &cobra.Command{
		Use:               "restart MACHINE...",
		Short:             "Stop machines and start them again",
		Example:           "  bourse machine restart quiet-river-1234 --timeout 30s",
		Args:              cli.AtLeast(1),
		ValidArgsFunction: completeMachine(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			stop, err := stopRequest(signal, timeout)
			if err != nil {
				return err
			}
			in := machinesapi.RestartMachine{ForceStop: force, Signal: stop.Signal, Timeout: stop.Timeout}
			return each(c.Context(), s, app, args, func(id bourse.MachineID) error {
				end := cli.Spin(s.Err, "restarting machine "+string(id))
				err := s.Client().Restart(c.Context(), bourse.AppName(app), id, in, "")
				end()
				if err != nil {
					return err
				}
				if detach {
					return acted(s, id, machinesapi.OK{OK: true}, "restarting")
				}
				reply, err := wait(c.Context(), s, app, id, []string{string(bourse.StateStarted)}, patience)
				if err != nil {
					return err
				}
				return acted(s, id, reply, string(reply.State)+" again")
			})
		},
	}
	s.BindApp(c, &app)
	flags := c.Flags()
	flags.StringVarP(&signal, "signal", "s", "", "`signal` that asks it to stop (default: the machine's own, SIGINT)")
	flags.StringVarP(&timeout, "timeout", "t", "", "`time` until SIGKILL, seconds or 30s (default: the machine's own, 5s)")
	flags.BoolVarP(&force, "force", "f", false, "kill it at once")
	flags.BoolVar(&force, "force-stop", false, "the same, as flyctl calls it")
	_ = flags.MarkHidden("force-stop") // fails for an unknown flag only
	waitFlags(c, &detach, &patience, "started")
	return c
}
