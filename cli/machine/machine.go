// Package machine implements the commands for machines and related objects: "bourse
// machine", "logs", "events", "order", "quote", "reservation", "spare", "task" and
// "volume". There is one file for each verb.
package machine

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// New returns the "machine" commands.
func New(s *cli.Shell) *cobra.Command {
	c := cli.Noun("machine", "Manage machines",
		newRun(s), newList(s), newStatus(s), NewEvents(s), newChecks(s), newStart(s), newStop(s), newSuspend(s), newRestart(s), newUpdate(s), newClone(s), newMove(s), newPlace(s), newVersions(s), newPS(s),
		newSignal(s), newExec(s), newForward(s), newStats(s), NewLogs(s), newWait(s), newDestroy(s))
	c.Aliases = []string{"machines", "m"}
	return c
}
