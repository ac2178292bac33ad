package machine

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

func newOrderList(s *cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the broker's recent orders",
		Long: `List recent orders of the apps that the token may access, newest first. A broker
remembers at most 100 orders, filled or refused, and only those that it decided
itself. A filled order can also be looked up through its machine.`,
		Example: "  bourse order list",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := s.Client().Orders(c.Context())
			if err != nil {
				return err
			}
			t := cli.NewTable("ORDER", "APP", "OUTCOME", "WORKER", "RESULT", "TIME", "AGE", "REASON").Numbers(5, 6).Narrow(7, 1, 3).Drop(1, 5, 3, 7)
			return cli.PrintList(s, list, "this broker has no recent orders", t, func(d *bourse.Decision) []string {
				became, why := string(d.Machine), d.Message
				if d.Volume != "" {
					became = string(d.Volume)
				}
				if d.Outcome == bourse.OutcomeFilled {
					why = ""
				}
				return []string{
					string(d.Order), string(d.App), string(d.Outcome), dash(string(d.Worker)), dash(became), cli.Took(d.Times.Total),
					cli.Age(s.Now().Sub(d.At)), dash(why),
				}
			})
		},
	}
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return cli.Clean(text)
}
