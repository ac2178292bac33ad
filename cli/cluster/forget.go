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
		Short: "Forget a worker that will not come back, with its machines and volumes",
		Long: `Forget a worker that is DOWN or has stopped and will not come back: its machines
and volumes are listed no more, and their names are free. A worker that is there
is not forgotten: end it first.

Nothing is destroyed on its host. Should it come back after all, it joins again
with all that it has, and warns of it in its log.`,
		Example:           "  bourse worker forget gru-1",
		Args:              cli.Exactly(1),
		ValidArgsFunction: complete(s),
		RunE: func(c *cobra.Command, args []string) error {
			id := bourse.WorkerID(args[0])
			w, err := s.Client().Worker(c.Context(), id)
			if err == nil && w.Since.IsZero() {
				err = bourse.Errorf(bourse.CodeFailedPrecondition, "worker %s is there: end it first", id)
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

// belongings says what a worker had.
func belongings(w *machinesapi.Worker) string {
	return cli.Count(w.Machines, "machine") + " and " + cli.Count(w.Volumes, "volume")
}
