package machine

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

func newVolumeDestroy(s *cli.Shell) *cobra.Command {
	var app string
	var yes bool
	c := &cobra.Command{
		Use:               "destroy VOLUME...",
		Aliases:           []string{"rm"},
		Short:             "Destroy volumes and their data, but not their snapshots",
		Example:           "  bourse volume destroy data --yes",
		Args:              cli.AtLeast(1),
		ValidArgsFunction: completeVolume(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.Confirm(c.Context(), yes, "destroy "+cli.Count(len(args), "volume")+" including all data"); err != nil {
				return err
			}
			return cli.Each(args, func(word string) error {
				id, err := resolveVolume(c.Context(), s, app, word)
				if err != nil {
					return err
				}
				if _, err := s.Client().Volumes(bourse.AppName(app)).Destroy(c.Context(), id); err != nil {
					return hintVolume(err, app, id)
				}
				_, err = fmt.Fprintf(s.Out, "%s  destroyed\n", id)
				return err
			})
		},
	}
	s.BindApp(c, &app)
	cli.BindYes(c, &yes)
	return c
}
