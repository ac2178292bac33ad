package serve

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

func newProxy(s *cli.Shell, r Roles) *cobra.Command {
	var config ProxyConfig
	c := &cobra.Command{
		Use:   "proxy",
		Short: "Run a proxy in front of machines",
		Long: `Run a proxy. It forwards connections for an app to one of the app's machines, and
starts a machine if none is running. You can run any number of proxies; they store
nothing important.`,
		Example: `  bourse serve proxy --region gru --join 10.0.0.1:7946`,
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.JoinProblems(complete(&config, c.Flags())); err != nil {
				return err
			}
			ctx, stop := s.Lifetime(c.Context(), config.LifeLine)
			defer stop()
			return r.Proxy(ctx, config)
		},
	}
	config.bind(c.Flags())
	return c
}
