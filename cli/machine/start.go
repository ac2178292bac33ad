package machine

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

func newStart(s *cli.Shell) *cobra.Command {
	var app string
	var detach bool
	var timeout time.Duration
	c := &cobra.Command{
		Use:               "start MACHINE...",
		Short:             "Start stopped machines",
		Example:           "  bourse machine start quiet-river-1234 148e21ea1d5389",
		Args:              cli.AtLeast(1),
		ValidArgsFunction: completeMachine(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			return forEach(c.Context(), s, app, args, func(id bourse.MachineID) error {
				reply, err := s.Client().Start(c.Context(), bourse.AppName(app), id, "")
				if err != nil {
					return err
				}
				state := string(bourse.StateStarted)
				if !detach {
					settled, err := wait(c.Context(), s, app, id, []string{state}, timeout)
					if err != nil {
						return err
					}
					state = string(settled.State)
				}
				return printAction(s, id, reply, fmt.Sprintf("%s (was %s)", state, reply.PreviousState))
			})
		},
	}
	s.BindApp(c, &app)
	waitFlags(c, &detach, &timeout, "started")
	return c
}

// waitFlags adds the flags of a command that waits until a machine has reached a state.
func waitFlags(c *cobra.Command, detach *bool, timeout *time.Duration, state string) {
	c.Flags().BoolVarP(detach, "detach", "d", false, "do not wait until the machine is "+state)
	c.Flags().DurationVar(timeout, "wait-timeout", 5*time.Minute, "maximum `time` to wait until the machine is "+state)
}

// printAction reports an operation on a machine as one line of text. With --json, it prints
// the API's reply instead.
func printAction(s *cli.Shell, id bourse.MachineID, reply any, what string) error {
	if s.JSON {
		return s.PrintJSON(reply)
	}
	_, err := fmt.Fprintf(s.Out, "%s  %s\n", id, cli.Clean(what))
	return err
}
