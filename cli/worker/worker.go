// Package worker has the commands of workers, their runs, and the files of their
// stores.
package worker

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// New returns the commands of workers; stores are of those that do not run.
func New(s *cli.Shell, stores Stores) *cobra.Command {
	c := cli.Noun("worker", "See the workers, their capacity and what they are doing", newList(s), newShow(s), newCordon(s), newUncordon(s), newDrain(s), newForget(s), newRuns(s), newStore(s, stores))
	c.Aliases = []string{"workers"}
	return c
}
