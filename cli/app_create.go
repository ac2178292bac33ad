package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func (s *shell) appCreate() *cobra.Command {
	var org, network string
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Make an app",
		Args:  exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			name := bourse.AppName(args[0])
			if err := name.Validate(); err != nil {
				return err
			}
			app, err := s.client().CreateApp(c.Context(), machinesapi.CreateApp{Name: name, Org: org, Network: network})
			if bourse.CodeOf(err) == bourse.CodeAlreadyExists {
				return hint(err, "take it as it is, or another name; see: bourse app list")
			}
			if err != nil {
				return err
			}
			if s.json {
				return s.printJSON(app)
			}
			_, err = fmt.Fprintf(s.Out, "%s  created\n", clean(string(app.Name)))
			return err
		},
	}
	c.Flags().StringVarP(&org, "org", "o", "", "`organisation` that owns it (default personal)")
	c.Flags().StringVar(&network, "network", "", "`name` of its private network")
	return c
}
