package cli

import "github.com/spf13/cobra"

func (s *shell) order() *cobra.Command {
	c := noun("order", "See how an order was decided", s.orderShow())
	c.Aliases = []string{"orders"}
	return c
}
