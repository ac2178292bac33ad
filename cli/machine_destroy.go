package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func (s *shell) machineDestroy() *cobra.Command {
	var app string
	var force, yes bool
	c := &cobra.Command{
		Use:               "destroy MACHINE...",
		Aliases:           []string{"rm", "delete"},
		Short:             "Destroy machines for good",
		Args:              atLeast(1),
		ValidArgsFunction: s.completeMachine(&app),
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.confirm(c.Context(), yes, "destroy "+strings.Join(args, ", ")); err != nil {
				return err
			}
			return s.each(c.Context(), app, args, func(id bourse.MachineID) error {
				end := spin(s.Err, "destroying machine "+string(id))
				err := s.client().Destroy(c.Context(), bourse.AppName(app), id, machinesapi.DestroyMachine{Force: force}, "")
				end()
				if bourse.CodeOf(err) == bourse.CodeFailedPrecondition && !force {
					return hint(ofMachine(id, err), "stop it first, or destroy it with --force")
				}
				if err != nil {
					return err
				}
				return s.acted(id, machinesapi.OK{OK: true}, "destroyed")
			})
		},
	}
	s.bindApp(c, &app)
	c.Flags().BoolVar(&force, "force", false, "also machines that run")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}
