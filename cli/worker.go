package cli

import "github.com/spf13/cobra"

func (s *shell) worker() *cobra.Command {
	c := noun("worker", "See the workers, their capacity and what they are doing", s.workerList(), s.workerShow(), s.workerRuns(), s.workerStore())
	c.Aliases = []string{"workers"}
	return c
}
