package machine

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

func newChecks(s *cli.Shell) *cobra.Command {
	var app string
	c := &cobra.Command{
		Use:               "checks MACHINE",
		Short:             "Show the results of a machine's health checks",
		Example:           "  bourse machine checks quiet-river-1234",
		Args:              cli.Exactly(1),
		ValidArgsFunction: completeMachine(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			m, err := find(c.Context(), s, app, args[0])
			if err != nil {
				return err
			}
			if s.JSON {
				return s.PrintJSON(append([]bourse.CheckStatus{}, m.Checks...))
			}
			if len(m.Checks) == 0 {
				s.Note("machine " + string(m.ID) + " has no health checks; add them with: bourse machine run --check http:8080/")
				return nil
			}
			return checkTable(s, m.Checks).Write(s.Out)
		},
	}
	s.BindApp(c, &app)
	return c
}

func checkTable(s *cli.Shell, list []bourse.CheckStatus) *cli.Table {
	t := cli.NewTable("CHECK", "STATUS", "FOR", "OUTPUT").Narrow(3)
	for _, c := range list {
		t.Row(c.Name, string(c.Status), cli.Age(s.Now().Sub(c.UpdatedAt)), c.Output)
	}
	return t
}
