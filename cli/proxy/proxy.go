// Package proxy has the commands of what proxies route where, and of the addresses
// of apps.
package proxy

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// New returns the commands of proxies.
func New(s *cli.Shell) *cobra.Command {
	return cli.Noun("proxy", "See what proxies route where", newStatus(s))
}
