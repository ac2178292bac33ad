package serve

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

func newWorker(s *cli.Shell, r Roles) *cobra.Command {
	var config WorkerConfig
	c := &cobra.Command{
		Use:   "worker",
		Short: "Run the daemon of one host",
		Long: `Run the daemon of one host: it answers orders with quotes, runs machines and is
the only owner of their truth.

SIGTERM and SIGINT end the daemon, not its machines: the next start with the
same --data finds them running. A second signal ends it at once; that is safe,
too.`,
		Example: `  bourse serve worker --region gru --name gru-1 --data /var/lib/bourse \
    --join 10.0.0.1:7946 --memory 8GiB --resource slots=10`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := config.settle(c.Flags()); err != nil {
				return err
			}
			if err := config.Validate(); err != nil {
				return err
			}
			ctx, stop := s.Lifetime(c.Context(), config.LifeLine)
			defer stop()
			return r.Worker(ctx, config)
		},
	}
	config.bind(c.Flags())
	return c
}
