package cluster

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// NewWorker returns the "worker" commands.
func NewWorker(s *cli.Shell) *cobra.Command {
	c := cli.Noun("worker", "Manage workers", newWorkerList(s), newShow(s), newCordon(s), newUncordon(s), newDrain(s), newRuns(s), newStore(s))
	c.Aliases = []string{"workers"}
	return c
}
