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
		Short: "Have a worker refuse new orders; what it has goes on",
		Long: `Have a worker refuse every new order: for machines, volumes, forks, tasks with a
machine of their own, and reservations. Its machines go on, and may be started,
updated and stopped. It stays so until "bourse worker uncordon", over restarts too.`,
		Example: "  bourse worker cordon gru-1",
	})
}

func newUncordon(s *cli.Shell) *cobra.Command {
	return cordonVerb(s, false, &cobra.Command{
		Use:     "uncordon WORKER",
		Short:   "Have a worker take orders again",
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
		says := "takes orders again"
		if cordon {
			says = "takes no more orders; it has " + machineCount(&w) + " machines"
		}
		_, err = fmt.Fprintf(s.Out, "%s  %s\n", w.ID, says)
		return err
	}
	return c
}

// cordonOf says since when a worker is cordoned, "" if it is not.
func cordonOf(c *bourse.Cordon, now time.Time) string {
	if c == nil {
		return ""
	}
	says := "since " + cli.Clock(c.At, now)
	if c.By != "" {
		says += ", by " + c.By
	}
	return says
}
