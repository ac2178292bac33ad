package cluster

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// NewView returns the "view" commands.
func NewView(s *cli.Shell) *cobra.Command {
	return cli.Noun("view", "Check the servers' copies of the view", newHealth(s))
}
