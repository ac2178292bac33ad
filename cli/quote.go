package cli

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
)

func (s *shell) quote() *cobra.Command {
	var f orderFlags
	c := &cobra.Command{
		Use:   "quote IMAGE [flags] [-- COMMAND...]",
		Short: "Show what an order would meet, without placing it",
		Long: `Show what an order would meet, without placing it: who could fill it, in which
order they would be claimed, and who could not and why. The flags are those of
"machine run". Ends with status 6 when nobody could fill it.`,
		Example: `  bourse quote host --region gru,any --vm-memory 8GiB -- ./server`,
		Args:    atLeast(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 && !bourse.InRegistry(args[0]) {
				args = append(args, "true") // what would run decides nothing
			}
			req, err := f.request(args)
			if err != nil {
				return err
			}
			d, err := s.client().Quote(c.Context(), bourse.AppName(f.app), req)
			if err != nil {
				return s.explainCreate(err, f.app, "")
			}
			if s.json {
				err = s.printJSON(d)
			} else {
				d.Order = "" // nobody can ask for it later
				err = printDecision(s.Out, &d, s.Out.Width)
			}
			if err == nil && d.Outcome == bourse.OutcomeRefused {
				return hint(bourse.Errorf(bourse.CodeInsufficient, "nobody could fill this order"),
					"another --region (or any), a smaller --vm-memory or --vm-cpus, or later")
			}
			return err
		},
	}
	f.bind(s, c)
	return c
}
