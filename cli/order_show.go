package cli

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
)

func (s *shell) orderShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show ORDER",
		Short: "Show who was asked, who said no and why, the ranking, the claims and the times",
		Args:  exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			id := bourse.OrderID(args[0])
			if err := id.Validate(); err != nil {
				return err
			}
			d, err := s.client().Order(c.Context(), id)
			if bourse.CodeOf(err) == bourse.CodeNotFound {
				return hint(err,
					"a filled order is known while its machine is: bourse machine list --json shows each machine's order_id",
					"a refused one for a while, and only by the broker that handled it")
			}
			if err != nil {
				return err
			}
			if s.json {
				return s.printJSON(d)
			}
			return printDecision(s.Out, &d, s.Out.Width)
		},
	}
}
