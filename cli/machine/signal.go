package machine

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newSignal(s *cli.Shell) *cobra.Command {
	var app, signal string
	c := &cobra.Command{
		Use:     "signal MACHINE...",
		Aliases: []string{"kill"},
		Short:   "Send a signal to machines' main processes",
		Example: `  bourse machine signal -s HUP 148e21ea1d5389
  bourse machine signal -s SIGKILL quiet-river-1234`,
		Args:              cli.AtLeast(1),
		ValidArgsFunction: completeMachine(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			parsed, err := bourse.ParseSignal(signal)
			if err != nil {
				return cli.FlagError("--signal", err)
			}
			// Unlike kill(1), this command accepts the signal only as a flag. Without this
			// check, a signal in the arguments would be mistaken for a machine, and the other
			// machines would receive SIGTERM.
			if i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "SIG") }); i >= 0 {
				return cli.Hint(bourse.Errorf(bourse.CodeInvalid, "%s is not a machine id; no signal was sent", bourse.Quoted(args[i])), "bourse machine signal --signal "+bourse.Quoted(args[i])+" MACHINE")
			}
			return forEach(c.Context(), s, app, args, func(id bourse.MachineID) error {
				if err := s.Client().Signal(c.Context(), bourse.AppName(app), id, parsed); err != nil {
					return err
				}
				return printAction(s, id, machinesapi.OK{OK: true}, "was sent "+string(parsed))
			})
		},
	}
	s.BindApp(c, &app)
	c.Flags().StringVarP(&signal, "signal", "s", "SIGTERM", "`signal` to send, by name or number")
	cli.CompleteFixed(c, "signal", "SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGSTOP", "SIGCONT")
	return c
}
