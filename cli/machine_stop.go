package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func (s *shell) machineStop() *cobra.Command {
	var app, signal, timeout string
	var detach bool
	var patience time.Duration
	c := &cobra.Command{
		Use:               "stop MACHINE...",
		Short:             "Stop machines; they keep their place and can be started again",
		Args:              atLeast(1),
		ValidArgsFunction: s.completeMachine(&app),
		RunE: func(c *cobra.Command, args []string) error {
			in, err := stopRequest(signal, timeout)
			if err != nil {
				return err
			}
			return s.each(c.Context(), app, args, func(id bourse.MachineID) error {
				if err := s.client().Stop(c.Context(), bourse.AppName(app), id, in, ""); err != nil {
					return err
				}
				if detach {
					return s.acted(id, machinesapi.OK{OK: true}, "stopping")
				}
				// A machine born with --rm is destroyed as soon as it has stopped.
				reply, err := s.wait(c.Context(), app, id, []string{string(bourse.StateStopped), string(bourse.StateDestroyed)}, patience)
				if err != nil {
					return err
				}
				return s.acted(id, reply, string(reply.State))
			})
		},
	}
	s.bindApp(c, &app)
	c.Flags().StringVarP(&signal, "signal", "s", "", "`signal` that asks it to stop (default: the machine's own, SIGINT)")
	c.Flags().StringVarP(&timeout, "timeout", "t", "", "`time` until SIGKILL, seconds or 30s (default: the machine's own, 5s)")
	waitFlags(c, &detach, &patience, "stopped")
	return c
}

// stopRequest reads what stop and restart have in common.
func stopRequest(signal, timeout string) (machinesapi.StopMachine, error) {
	var in machinesapi.StopMachine
	if signal != "" {
		parsed, err := bourse.ParseSignal(signal)
		if err != nil {
			return in, named("--signal", err)
		}
		in.Signal = parsed
	}
	if timeout != "" {
		d, err := parseSeconds(timeout)
		if err != nil {
			return in, named("--timeout", err)
		}
		in.Timeout = bourse.Duration(d)
	}
	return in, nil
}
