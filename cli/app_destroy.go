package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func (s *shell) appDestroy() *cobra.Command {
	var force, yes bool
	c := &cobra.Command{
		Use:     "destroy NAME",
		Aliases: []string{"rm", "delete"},
		Short:   "Destroy an app with its machines",
		Args:    exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			name := bourse.AppName(args[0])
			if err := name.Validate(); err != nil {
				return err
			}
			if err := s.confirm(c.Context(), yes, "destroy app "+string(name)+" and its machines"); err != nil {
				return err
			}
			end := spin(s.Err, "destroying app "+string(name))
			err := s.client().DeleteApp(c.Context(), name, force)
			end()
			switch bourse.CodeOf(err) {
			case "":
			case bourse.CodeFailedPrecondition:
				return hint(err, "stop its machines first, or destroy it with --force")
			case bourse.CodeNotFound:
				return hint(err, "bourse app list")
			default:
				return err
			}
			if s.json {
				return s.printJSON(machinesapi.OK{OK: true})
			}
			_, err = fmt.Fprintf(s.Out, "%s  destroyed\n", name)
			return err
		},
	}
	c.Flags().BoolVar(&force, "force", false, "also with machines that run")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}
