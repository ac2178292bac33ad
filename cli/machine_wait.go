package cli

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func (s *shell) machineWait() *cobra.Command {
	var app string
	var states []string
	var timeout time.Duration
	names := append(stateNames(), machinesapi.StateSettled)
	c := &cobra.Command{
		Use:   "wait MACHINE",
		Short: "Wait until a machine is in a state",
		Example: `  bourse machine wait --state stopped quiet-river-1234
  bourse machine wait --state stopped,failed --wait-timeout 30s 148e21ea1d5389`,
		Args:              exactly(1),
		ValidArgsFunction: s.completeMachine(&app),
		RunE: func(c *cobra.Command, args []string) error {
			for _, state := range states {
				if !slices.Contains(names, state) {
					return bourse.Errorf(bourse.CodeInvalid, "--state %s: use %s", bourse.Quoted(state), strings.Join(names, ", "))
				}
			}
			id, err := s.resolve(c.Context(), app, args[0])
			if err != nil {
				return err
			}
			reply, err := s.wait(c.Context(), app, id, states, timeout)
			if err != nil {
				return err
			}
			return s.acted(id, reply, string(reply.State))
		},
	}
	s.bindApp(c, &app)
	c.Flags().StringSliceVar(&states, "state", []string{machinesapi.StateSettled}, "the `states`, comma separated; settled is any that lasts")
	c.Flags().DurationVar(&timeout, "wait-timeout", 5*time.Minute, "give up after this `time`")
	fixed(c, "state", names...)
	return c
}
