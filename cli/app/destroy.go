package app

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newDestroy(s *cli.Shell) *cobra.Command {
	var force, yes bool
	c := &cobra.Command{
		Use:               "destroy NAME",
		Aliases:           []string{"rm", "delete"},
		Short:             "Destroy an app and its machines",
		Example:           "  bourse app destroy shop --force --yes",
		Args:              cli.Exactly(1),
		ValidArgsFunction: cli.Complete(s.Apps),
		RunE: func(c *cobra.Command, args []string) error {
			name := bourse.AppName(args[0])
			if err := name.Validate(); err != nil {
				return err
			}
			if err := s.Confirm(c.Context(), yes, "destroy app "+string(name)+" and its machines"); err != nil {
				return err
			}
			end := cli.Spin(s.Err, "destroying app "+string(name))
			err := s.Client().DeleteApp(c.Context(), name, force)
			end()
			switch bourse.CodeOf(err) {
			case "":
			case bourse.CodeFailedPrecondition:
				return cli.Hint(err, "bourse app destroy "+string(name)+" --force"+cli.YesFlag(yes))
			case bourse.CodeNotFound:
				return cli.Hint(err, "bourse app list")
			default:
				return err
			}
			if s.JSON {
				return s.PrintJSON(machinesapi.OK{OK: true})
			}
			_, err = fmt.Fprintf(s.Out, "%s  destroyed\n", name)
			return err
		},
	}
	c.Flags().BoolVarP(&force, "force", "f", false, "also destroy running machines")
	cli.BindYes(c, &yes)
	return c
}
