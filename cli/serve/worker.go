package serve

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

func newWorker(s *cli.Shell, r Roles) *cobra.Command {
	var config WorkerConfig
	c := &cobra.Command{
		Use:   "worker",
		Short: "Run a host's worker daemon",
		Long: `Run a host's worker daemon. It answers orders with quotes and runs machines, and it
alone manages the host's machines and capacity.

SIGTERM and SIGINT stop the daemon, but not its machines. When the daemon is started
again with the same --data, it finds them running. A second signal kills the daemon
immediately, which is also safe.`,
		Example: `  bourse serve worker --region gru --name gru-1 --data /var/lib/bourse \
    --join 10.0.0.1:7946 --memory 8GiB --resource slots=10`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.JoinProblems(complete(&config, c.Flags())); err != nil {
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
