package cluster

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// NewRegion returns the "region" commands.
func NewRegion(s *cli.Shell) *cobra.Command {
	c := cli.Noun("region", "Show the regions", newRegionList(s))
	c.Aliases = []string{"regions"}
	return c
}
