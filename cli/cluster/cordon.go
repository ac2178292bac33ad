package cluster

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

func newCordon(s *cli.Shell) *cobra.Command {
	return cordonVerb(s, true, &cobra.Command{
		Use:   "cordon WORKER",
		Short: "Stop placing new orders on a worker",
		Long: `Make a worker refuse all new orders: for machines, volumes, forks, cold tasks and
reservations. Its machines keep running, and can still be started, updated and
stopped. A cordon survives restarts and lasts until "bourse worker uncordon".`,
		Example: "  bourse worker cordon gru-1",
	})
}

func newUncordon(s *cli.Shell) *cobra.Command {
	return cordonVerb(s, false, &cobra.Command{
		Use:     "uncordon WORKER",
		Short:   "Resume placing new orders on a worker",
		Example: "  bourse worker uncordon gru-1",
	})
}

func cordonVerb(s *cli.Shell, cordon bool, c *cobra.Command) *cobra.Command {
	c.Args, c.ValidArgsFunction = cli.Exactly(1), complete(s)
	c.RunE = func(c *cobra.Command, args []string) error {
		w, err := s.Client().Operator().Cordon(c.Context(), bourse.WorkerID(args[0]), cordon)
		if bourse.CodeOf(err) == bourse.CodeNotFound {
			return cli.Hint(err, "bourse worker list")
		}
		if err != nil {
			return err
		}
		if s.JSON {
			return s.PrintJSON(w)
		}
		text := "accepts orders again"
		if cordon {
			text = "no longer accepts orders; remaining machines: " + machineCount(&w)
		}
		_, err = fmt.Fprintf(s.Out, "%s  %s\n", w.ID, text)
		return err
	}
	return c
}

// cordonOf describes when and by whom a worker was cordoned. It returns "" if the worker is
// not cordoned.
func cordonOf(c *bourse.Cordon, now time.Time) string {
	if c == nil {
		return ""
	}
	text := "since " + cli.Clock(c.At, now)
	if c.By != "" {
		text += ", by " + c.By
	}
	return text
}
