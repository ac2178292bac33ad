package machine

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// NewOrder returns the "order" commands.
func NewOrder(s *cli.Shell) *cobra.Command {
	c := cli.Noun("order", "Show how orders were decided", newOrderList(s), newOrderShow(s))
	c.Aliases = []string{"orders"}
	return c
}
