package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
)

func (s *shell) machineStart() *cobra.Command {
	var app string
	var detach bool
	var timeout time.Duration
	c := &cobra.Command{
		Use:               "start MACHINE...",
		Short:             "Start machines that do not run",
		Args:              atLeast(1),
		ValidArgsFunction: s.completeMachine(&app),
		RunE: func(c *cobra.Command, args []string) error {
			return s.each(c.Context(), app, args, func(id bourse.MachineID) error {
				reply, err := s.client().Start(c.Context(), bourse.AppName(app), id, "")
				if err != nil {
					return err
				}
				state := string(bourse.StateStarted)
				if !detach {
					settled, err := s.wait(c.Context(), app, id, []string{state}, timeout)
					if err != nil {
						return err
					}
					state = string(settled.State)
				}
				return s.acted(id, reply, fmt.Sprintf("%s (was %s)", state, reply.PreviousState))
			})
		},
	}
	s.bindApp(c, &app)
	waitFlags(c, &detach, &timeout, "started")
	return c
}

// waitFlags are the flags of a verb that waits for the machine to get there.
func waitFlags(c *cobra.Command, detach *bool, timeout *time.Duration, state string) {
	c.Flags().BoolVarP(detach, "detach", "d", false, "do not wait for the machine to be "+state)
	c.Flags().DurationVar(timeout, "wait-timeout", 5*time.Minute, "wait so `long` for the machine to be "+state)
}

// acted tells that a verb has been done to a machine: one line, or the API's
// own reply.
func (s *shell) acted(id bourse.MachineID, reply any, what string) error {
	if s.json {
		return s.printJSON(reply)
	}
	_, err := fmt.Fprintf(s.Out, "%s  %s\n", id, clean(what))
	return err
}
