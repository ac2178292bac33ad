package cli

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
)

func (s *shell) volumeExtend() *cobra.Command {
	var app, size string
	c := &cobra.Command{
		Use:     "extend VOLUME --size SIZE",
		Short:   "Make a volume larger, also while it is in use",
		Example: "  bourse volume extend data --size 20GiB",
		Args:    exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			gigabytes, err := parseGB(size)
			if err == nil && gigabytes == 0 {
				err = bourse.Errorf(bourse.CodeInvalid, "it is required")
			}
			if err != nil {
				return named("--size", err)
			}
			id, err := s.resolveVolume(c.Context(), app, args[0])
			if err != nil {
				return err
			}
			v, err := s.client().ExtendVolume(c.Context(), bourse.AppName(app), id, gigabytes)
			if err != nil {
				return aboutVolume(err, app, id)
			}
			return s.printVolume(&v)
		},
	}
	s.bindApp(c, &app)
	c.Flags().StringVarP(&size, "size", "s", "", "the new `size` in whole gigabytes, such as 20GiB or 20")
	return c
}
