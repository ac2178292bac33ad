package cluster

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newForget(s *cli.Shell) *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "forget WORKER",
		Short: "Remove a lost worker, with its machines and volumes, from the cluster",
		Long: `Remove a worker that is DOWN or stopped, and will not come back, from the cluster. Its
machines and volumes are no longer listed, and their names can be used again. A
worker that is running cannot be removed: stop it first.

Nothing is destroyed on the worker's host. If the worker does come back, it joins
again with all its machines and volumes, and writes a warning to its log.`,
		Example:           "  bourse worker forget gru-1",
		Args:              cli.Exactly(1),
		ValidArgsFunction: complete(s),
		RunE: func(c *cobra.Command, args []string) error {
			id := bourse.WorkerID(args[0])
			w, err := s.Client().Worker(c.Context(), id)
			if err == nil && w.Since.IsZero() {
				err = bourse.Errorf(bourse.CodeFailedPrecondition, "worker %s is running: stop it first", id)
			}
			if bourse.CodeOf(err) == bourse.CodeNotFound {
				return cli.Hint(err, "bourse worker list")
			}
			if err != nil {
				return err
			}
			question := fmt.Sprintf("forget worker %s, %s, with %s", id, statusOf(&w, s.Now()), belongings(&w))
			if err := s.Confirm(c.Context(), yes, question); err != nil {
				return err
			}
			w, err = s.Client().Operator().Forget(c.Context(), id)
			if err != nil {
				return err
			}
			if s.JSON {
				return s.PrintJSON(w)
			}
			_, err = fmt.Fprintf(s.Out, "%s  forgotten, with %s\n", w.ID, belongings(&w))
			return err
		},
	}
	cli.BindYes(c, &yes)
	return c
}

// belongings formats the numbers of machines and volumes that a worker had.
func belongings(w *machinesapi.Worker) string {
	return cli.Count(w.Machines, "machine") + " and " + cli.Count(w.Volumes, "volume")
}
