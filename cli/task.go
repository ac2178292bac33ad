package cli

import "github.com/spf13/cobra"

func (s *shell) task() *cobra.Command {
	c := noun("task", "Have work done: payload in, answer out", s.taskRun())
	c.Aliases = []string{"tasks"}
	return c
}
