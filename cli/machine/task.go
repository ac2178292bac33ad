package machine

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// NewTask returns the commands of tasks.
func NewTask(s *cli.Shell) *cobra.Command {
	c := cli.Noun("task", "Run tasks: payload in, answer out", newTaskRun(s), newTaskList(s))
	c.Aliases = []string{"tasks"}
	return c
}
