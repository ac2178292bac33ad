package machine

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newWait(s *cli.Shell) *cobra.Command {
	var app string
	var states []string
	var timeout time.Duration
	names := append(stateNames(), machinesapi.StateSettled)
	c := &cobra.Command{
		Use:   "wait MACHINE",
		Short: "Wait until a machine is in a given state",
		Long: `Wait until a machine is in a given state. The state "started" must last for a
second. If the machine's restart policy restarts it while the command waits, the
command fails and reports how the program ended.`,
		Example: `  bourse machine wait --state stopped quiet-river-1234
  bourse machine wait --state stopped,failed --wait-timeout 30s 148e21ea1d5389`,
		Args:              cli.Exactly(1),
		ValidArgsFunction: completeMachine(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			for _, state := range states {
				if !slices.Contains(names, state) {
					return bourse.Errorf(bourse.CodeInvalid, "--state %s: use %s", bourse.Quoted(state), strings.Join(names, ", "))
				}
			}
			before, err := find(c.Context(), s, app, args[0])
			if err != nil {
				return err
			}
			reply, err := wait(c.Context(), s, app, before.ID, states, timeout)
			if err == nil && reply.State == bourse.StateStarted {
				reply.State, err = confirmStarted(c.Context(), s, &before, states)
			}
			if err != nil {
				return err
			}
			return printAction(s, before.ID, reply, string(reply.State))
		},
	}
	s.BindApp(c, &app)
	c.Flags().StringSliceVar(&states, "state", []string{machinesapi.StateSettled}, "`states` to wait for, separated by commas; settled is any state that lasts")
	c.Flags().DurationVar(&timeout, "wait-timeout", 5*time.Minute, "maximum `time` to wait")
	cli.CompleteFixed(c, "state", names...)
	return c
}
