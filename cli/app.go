package cli

import "github.com/spf13/cobra"

func (s *shell) app() *cobra.Command {
	c := noun("app", "Make, list and destroy apps, the name spaces of machines", s.appCreate(), s.appList(), s.appDestroy())
	c.Aliases = []string{"apps"}
	return c
}
