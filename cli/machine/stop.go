package machine

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newStop(s *cli.Shell) *cobra.Command {
	var app, signal, timeout string
	var detach bool
	var waitTimeout time.Duration
	c := &cobra.Command{
		Use:               "stop MACHINE...",
		Short:             "Stop machines without releasing their capacity",
		Example:           "  bourse machine stop quiet-river-1234 --signal SIGTERM --timeout 30s",
		Args:              cli.AtLeast(1),
		ValidArgsFunction: completeMachine(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			in, err := stopRequest(signal, timeout)
			if err != nil {
				return err
			}
			return forEach(c.Context(), s, app, args, func(id bourse.MachineID) error {
				if err := s.Client().Stop(c.Context(), bourse.AppName(app), id, in, ""); err != nil {
					return err
				}
				if detach {
					return printAction(s, id, machinesapi.OK{OK: true}, "stopping")
				}
				// A machine that was created with --rm is destroyed as soon as it has
				// stopped.
				reply, err := wait(c.Context(), s, app, id, []string{string(bourse.StateStopped), string(bourse.StateDestroyed)}, waitTimeout)
				if err != nil {
					return err
				}
				return printAction(s, id, reply, string(reply.State))
			})
		},
	}
	s.BindApp(c, &app)
	c.Flags().StringVarP(&signal, "signal", "s", "", "`signal` to stop the machine with (default: from its config, or SIGINT)")
	c.Flags().StringVarP(&timeout, "timeout", "t", "", "`time` before SIGKILL is sent, in seconds or as 30s (default: from the machine's config, or 5s)")
	waitFlags(c, &detach, &waitTimeout, "stopped")
	return c
}

// stopRequest parses the flags that stop and restart have in common.
func stopRequest(signal, timeout string) (machinesapi.StopMachine, error) {
	var in machinesapi.StopMachine
	if signal != "" {
		parsed, err := bourse.ParseSignal(signal)
		if err != nil {
			return in, cli.FlagError("--signal", err)
		}
		in.Signal = parsed
	}
	if timeout != "" {
		d, err := cli.ParseSeconds(timeout)
		if err != nil {
			return in, cli.FlagError("--timeout", err)
		}
		in.Timeout = bourse.Duration(d)
	}
	return in, nil
}
