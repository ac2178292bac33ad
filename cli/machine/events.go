package machine

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newEvents(s *cli.Shell) *cobra.Command {
	var app string
	var limit int
	c := &cobra.Command{
		Use:   "events MACHINE",
		Short: "List what has happened to a machine, newest first",
		Long: `List what has happened to a machine, newest first: what it was, in which state the
machine was then, who caused it, and how its program ended. Its worker remembers
the events of a machine until a while after it was destroyed.`,
		Example:           "  bourse machine events quiet-river-1234",
		Args:              cli.Exactly(1),
		ValidArgsFunction: completeMachine(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			if limit < 1 || limit > machinesapi.MaxEvents {
				return bourse.Errorf(bourse.CodeInvalid, "--limit %d: use 1 to %d", limit, machinesapi.MaxEvents)
			}
			id, err := resolve(c.Context(), s, app, args[0])
			if err != nil {
				return err
			}
			list, err := s.Client().Events(c.Context(), bourse.AppName(app), id, limit)
			if err != nil {
				return about(err, app, id)
			}
			return cli.PrintList(s, list, "machine "+string(id)+" has no events", newEventTable(), eventRow)
		},
	}
	s.BindApp(c, &app)
	c.Flags().IntVarP(&limit, "limit", "n", machinesapi.MaxEvents, "at most so `many`")
	return c
}
