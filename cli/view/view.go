// Package view has the commands of the servers' copies of the view.
package view

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// New returns the commands of the servers' copies of the view.
func New(s *cli.Shell) *cobra.Command {
	return cli.Noun("view", "See how the servers' copies of the view are", newHealth(s))
}
