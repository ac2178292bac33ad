package cluster

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// NewProxy returns the commands of proxies.
func NewProxy(s *cli.Shell) *cobra.Command {
	return cli.Noun("proxy", "See what proxies route where", newStatus(s))
}
