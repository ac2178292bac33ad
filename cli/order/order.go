// Package order has the commands that show how an order was decided, and how one
// would be.
package order

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

// New returns the commands of orders.
func New(s *cli.Shell) *cobra.Command {
	c := cli.Noun("order", "See how an order was decided", newList(s), newShow(s))
	c.Aliases = []string{"orders"}
	return c
}
