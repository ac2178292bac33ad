// Package task has the commands of tasks: a payload in, an answer out.
package task

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// New returns the commands of tasks.
func New(s *cli.Shell) *cobra.Command {
	c := cli.Noun("task", "Run tasks: payload in, answer out", newRun(s), newList(s))
	c.Aliases = []string{"tasks"}
	return c
}
