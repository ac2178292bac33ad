package machine

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// NewTask returns the "task" commands.
func NewTask(s *cli.Shell) *cobra.Command {
	c := cli.Noun("task", "Run tasks on payloads", newTaskRun(s), newTaskList(s))
	c.Aliases = []string{"tasks"}
	return c
}
