package cluster

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// NewProxy returns the "proxy" commands.
func NewProxy(s *cli.Shell) *cobra.Command {
	return cli.Noun("proxy", "Show what proxies route", newStatus(s))
}
