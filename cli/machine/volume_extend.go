package machine

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

func newVolumeExtend(s *cli.Shell) *cobra.Command {
	var app, size string
	c := &cobra.Command{
		Use:               "extend VOLUME --size SIZE",
		Short:             "Enlarge a volume, even while it is in use",
		Example:           "  bourse volume extend data --size 20GiB",
		Args:              cli.Exactly(1),
		ValidArgsFunction: completeVolume(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			gigabytes, err := parseGB(size)
			if err == nil && gigabytes == 0 {
				err = bourse.Errorf(bourse.CodeInvalid, "this flag is required")
			}
			if err != nil {
				return cli.FlagError("--size", err)
			}
			id, err := resolveVolume(c.Context(), s, app, args[0])
			if err != nil {
				return err
			}
			v, err := s.Client().Volumes(bourse.AppName(app)).Extend(c.Context(), id, gigabytes)
			if err != nil {
				return hintVolume(err, app, id)
			}
			return printVolume(s, &v)
		},
	}
	s.BindApp(c, &app)
	c.Flags().StringVarP(&size, "size", "s", "", "new `size` in whole GiB, such as 20GiB or 20")
	return c
}
