package cluster

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// NewRegion returns the commands of regions.
func NewRegion(s *cli.Shell) *cobra.Command {
	c := cli.Noun("region", "See the regions and what is free there", newRegionList(s))
	c.Aliases = []string{"regions"}
	return c
}
