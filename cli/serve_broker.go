package cli

import "github.com/spf13/cobra"

func (s *shell) serveBroker() *cobra.Command {
	var f brokerFlags
	c := &cobra.Command{
		Use:   "broker",
		Short: "Run a stateless API server",
		Long: `Run a stateless API server: it takes orders, asks the workers for quotes, claims
the best and answers. Run as many as you like; they keep nothing.`,
		Example: `  bourse serve broker --listen 127.0.0.1:4280 --join 10.0.0.1:7946`,
		Args:    none,
		RunE: func(c *cobra.Command, _ []string) error {
			config := f.read(c.Flags().Changed("gossip"))
			if err := config.Validate(); err != nil {
				return err
			}
			ctx, stop := s.lifetime(c.Context(), config.LifeLine)
			defer stop()
			return s.Roles.Broker(ctx, config)
		},
	}
	f.bind(c.Flags())
	return c
}
