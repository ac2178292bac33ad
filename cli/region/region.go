// Package region has the commands of regions, the products of the exchange.
package region

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// New returns the commands of regions.
func New(s *cli.Shell) *cobra.Command {
	c := cli.Noun("region", "See the regions and what is free there", newList(s))
	c.Aliases = []string{"regions"}
	return c
}
