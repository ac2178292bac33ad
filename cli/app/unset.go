package app

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

func newUnset(s *cli.Shell) *cobra.Command {
	var app string
	c := &cobra.Command{
		Use:               "unset NAME...",
		Aliases:           []string{"rm"},
		Short:             "Remove secrets from an app",
		Example:           "  bourse secrets unset DATABASE_URL -a shop",
		Args:              cli.AtLeast(1),
		ValidArgsFunction: completeSecret(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			list, err := secretsOf(s, app).List(c.Context())
			if err != nil {
				return hintSecrets(err, app)
			}
			known := map[string]bool{}
			for i := range list.Secrets {
				known[list.Secrets[i].Name] = true
			}
			values := map[string]*string{}
			for _, name := range args {
				if !known[name] {
					return cli.Hint(bourse.Errorf(bourse.CodeNotFound, "app %s has no secret %s", app, bourse.Quoted(name)), "bourse secrets list -a "+app)
				}
				values[name] = nil
			}
			return change(c.Context(), s, app, args, values)
		},
	}
	s.BindApp(c, &app)
	return c
}
