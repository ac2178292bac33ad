package image

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
)

func newPrune(s *cli.Shell) *cobra.Command {
	var f targetFlags
	c := &cobra.Command{
		Use:     "prune",
		Short:   "Remove the images that no machine uses",
		Example: "  bourse image prune --worker gru-1",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, silent, err := s.Client().PruneImages(c.Context(), f.target())
			if err != nil {
				return f.explain(c.Context(), s, err)
			}
			s.WarnMissing(silent, "images")
			return printList(s, list, "every image is in use, or there is none")
		},
	}
	f.bind(s, c, c.Flags())
	return c
}
