package machine

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/place"
)

// NewQuote returns the "quote" command.
func NewQuote(s *cli.Shell) *cobra.Command {
	var f place.Flags
	c := &cobra.Command{
		Use:   "quote [flags] IMAGE [COMMAND...]",
		Short: "Show which workers would accept an order, without placing it",
		Long: `Show what would happen to an order without placing it: which workers could fill
it, how they rank, and why the others refuse it. The flags are those of "machine
run". If no worker could fill the order, the command exits with status 6.`,
		Example: `  bourse quote host --region gru,any --vm-memory 8GiB -- ./server`,
		Args:    cli.AtLeast(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 && bourse.KindOfImage(args[0]) != bourse.RegistryImage {
				args = append(args, "true") // the order needs a command, but the command does not affect quotes
			}
			req, err := f.Request(args)
			if err != nil {
				return err
			}
			d, err := s.Client().Quote(c.Context(), bourse.AppName(f.App), req)
			if err != nil {
				return place.Explain(s, err, f.App, "")
			}
			place.Warn(s, d.Warnings)
			if s.JSON {
				err = s.PrintJSON(d)
			} else {
				d.Order = "" // omit the order's id, because it cannot be looked up later
				err = place.PrintDecision(s.Out, &d.Decision)
			}
			if err != nil || d.Outcome != bourse.OutcomeRefused {
				return err
			}
			err = cli.Hint(bourse.Errorf(bourse.CodeInsufficient, "no worker could fill this order"), cli.AfterRefusals(d.Refusals())...)
			return cli.AfterResult(err)
		},
	}
	f.Bind(s, c)
	s.CommandLast(c)
	return c
}
