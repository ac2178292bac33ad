// Package app has the commands of apps, one verb a file.
package app

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// New returns the commands of apps.
func New(s *cli.Shell) *cobra.Command {
	c := cli.Noun("app", "Make, list and destroy apps, the name spaces of machines", newCreate(s), newList(s), newShow(s), newReleases(s), newDestroy(s))
	c.Aliases = []string{"apps"}
	return c
}
