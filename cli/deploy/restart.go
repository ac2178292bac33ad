package deploy

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy"
)

// NewAppRestart returns the command restart below app.
func NewAppRestart(s *cli.Shell) *cobra.Command {
	var f workFlags
	c := &cobra.Command{
		Use:   "restart [APP]",
		Short: "Stop an app's machines and start them again, some at a time",
		Long: `Stop an app's machines and start them again, some at a time: each has to be ready
before the next. Machines that do not run are left alone.`,
		Example: `  bourse app restart shop
  bourse app restart shop --group web --max-unavailable 1`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cli.Complete(s.Apps),
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c.Context(), s, "restart", func(have *there) (deploy.Plan, error) {
				return deploy.Restart(have.State, f.groups(), f.pace()), nil
			})
		},
	}
	f.bind(s, c).OrArgument()
	return c
}
