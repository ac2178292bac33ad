// Package machine has the commands of machines, one verb a file. Every verb finds
// a machine by its id, its name or a beginning of its id: resolve.go.
package machine

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// New returns the commands of machines.
func New(s *cli.Shell) *cobra.Command {
	c := cli.Noun("machine", "Run, see and end machines",
		newRun(s), newList(s), newStatus(s), NewEvents(s), newChecks(s), newStart(s), newStop(s), newSuspend(s), newRestart(s), newUpdate(s), newClone(s), newMove(s), newPlace(s), newVersions(s), newPS(s),
		newSignal(s), newExec(s), newForward(s), newStats(s), NewLogs(s), newWait(s), newDestroy(s))
	c.Aliases = []string{"machines", "m"}
	return c
}
