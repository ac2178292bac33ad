package cluster

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// NewView returns the commands of the servers' copies of the view.
func NewView(s *cli.Shell) *cobra.Command {
	return cli.Noun("view", "See how the servers' copies of the view are", newHealth(s))
}
