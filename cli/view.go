package cli

import "github.com/spf13/cobra"

func (s *shell) view() *cobra.Command {
	return noun("view", "See how the servers' copies of the view are", s.viewHealth())
}
