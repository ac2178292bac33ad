package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
)

func (s *shell) volumeDestroy() *cobra.Command {
	var app string
	var yes bool
	c := &cobra.Command{
		Use:     "destroy VOLUME...",
		Aliases: []string{"rm"},
		Short:   "Remove volumes and what is on them; their snapshots stay for their time",
		Args:    atLeast(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.confirm(c.Context(), yes, "destroy "+count(len(args), "volume")+" and the data on it"); err != nil {
				return err
			}
			var problems []error
			for _, word := range args {
				id, err := s.resolveVolume(c.Context(), app, word)
				if err == nil {
					_, err = s.client().DestroyVolume(c.Context(), bourse.AppName(app), id)
					err = aboutVolume(err, app, id)
				}
				if err != nil {
					problems = append(problems, err)
					continue
				}
				fmt.Fprintf(s.Out, "%s  destroyed\n", id)
			}
			if len(problems) == 1 {
				return problems[0]
			}
			return errors.Join(problems...)
		},
	}
	s.bindApp(c, &app)
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}
