package cluster

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// NewWorker returns the commands of workers; stores are of those that do not run.
func NewWorker(s *cli.Shell, stores Stores) *cobra.Command {
	c := cli.Noun("worker", "See the workers, their capacity and what they are doing", newWorkerList(s), newShow(s), newCordon(s), newUncordon(s), newDrain(s), newForget(s), newRuns(s), newStore(s, stores))
	c.Aliases = []string{"workers"}
	return c
}
