// Package app implements the commands that manage apps and access to them: "bourse
// app", "status", "secrets", "token" and "credentials". Each verb has its own file.
package app

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// New returns the "app" command, with its own subcommands and those in more, which
// other packages implement.
func New(s *cli.Shell, more ...*cobra.Command) *cobra.Command {
	verbs := append([]*cobra.Command{newCreate(s), newList(s), newShow(s), newDestroy(s)}, more...)
	c := cli.Noun("app", "Manage apps, which group machines", verbs...)
	c.Aliases = []string{"apps"}
	return c
}
