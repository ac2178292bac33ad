package cli

import "github.com/spf13/cobra"

func (s *shell) serve() *cobra.Command {
	return noun("serve", "Run one server of a cluster", s.serveWorker(), s.serveBroker(), s.serveNATS())
}
