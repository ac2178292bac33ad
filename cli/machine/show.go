package machine

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/place"
)

func newOrderShow(s *cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use:               "show ORDER",
		Short:             "Show how an order was decided: quotes, refusals, ranking, claims and times",
		Example:           "  bourse order show 01JD3V7K7Y5C5ZQ7W1R2M3N4P5",
		Args:              cli.Exactly(1),
		ValidArgsFunction: completeOrder(s),
		RunE: func(c *cobra.Command, args []string) error {
			id := bourse.OrderID(args[0])
			if err := id.Validate(); err != nil {
				return err
			}
			d, err := s.Client().Order(c.Context(), id)
			if bourse.CodeOf(err) == bourse.CodeNotFound {
				return cli.Hint(err, "bourse machine list --json, which shows the order_id of each machine")
			}
			if err != nil {
				return err
			}
			if s.JSON {
				return s.PrintJSON(d)
			}
			return place.PrintDecision(s.Out, &d)
		},
	}
}
