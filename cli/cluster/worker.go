package cluster

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// NewWorker returns the "bourse worker" commands.
func NewWorker(s *cli.Shell) *cobra.Command {
	c := cli.Noun("worker", "See the workers, their capacity and what they are doing", newWorkerList(s), newShow(s), newCordon(s), newUncordon(s), newDrain(s), newForget(s), newRuns(s), newStore(s))
	c.Aliases = []string{"workers"}
	return c
}
