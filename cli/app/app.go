// Package app implements the commands of apps and of what belongs to them: "bourse
// app", "status", "secrets", "token" and "credentials". There is one file for each verb.
package app

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// New returns the commands of apps, with more that other packages have.
func New(s *cli.Shell, more ...*cobra.Command) *cobra.Command {
	verbs := append([]*cobra.Command{newCreate(s), newList(s), newShow(s), newDestroy(s)}, more...)
	c := cli.Noun("app", "Make, list and destroy apps, the name spaces of machines", verbs...)
	c.Aliases = []string{"apps"}
	return c
}
