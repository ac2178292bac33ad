package app

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newCreate(s *cli.Shell) *cobra.Command {
	var org, network string
	c := &cobra.Command{
		Use:     "create NAME",
		Short:   "Create an app",
		Example: "  bourse app create shop --org acme",
		Args:    cli.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			name := bourse.AppName(args[0])
			if err := name.Validate(); err != nil {
				return err
			}
			app, err := s.Client().CreateApp(c.Context(), machinesapi.CreateApp{Name: name, Org: org, Network: network})
			if bourse.CodeOf(err) == bourse.CodeAlreadyExists {
				return cli.Hint(err, "bourse app list")
			}
			if err != nil {
				return err
			}
			if s.JSON {
				return s.PrintJSON(app)
			}
			_, err = fmt.Fprintf(s.Out, "%s  created\n", cli.Clean(string(app.Name)))
			return err
		},
	}
	c.Flags().StringVarP(&org, "org", "o", "", "`organization` that owns the app (default: personal)")
	c.Flags().StringVar(&network, "network", "", "`name` of the app's private network")
	return c
}
