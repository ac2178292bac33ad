package serve

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

func newBroker(s *cli.Shell, r Roles) *cobra.Command {
	var config BrokerConfig
	c := &cobra.Command{
		Use:   "broker",
		Short: "Run a stateless API server",
		Long: `Run a stateless API server. It receives orders, requests quotes from the workers,
claims the best one, and replies. You can run any number of brokers.`,
		Example: `  bourse serve broker --listen 127.0.0.1:4280 --join 10.0.0.1:7946`,
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.JoinProblems(complete(&config, c.Flags())); err != nil {
				return err
			}
			ctx, stop := s.Lifetime(c.Context(), config.LifeLine)
			defer stop()
			return r.Broker(ctx, config)
		},
	}
	config.bind(c.Flags())
	return c
}
