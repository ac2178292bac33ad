package app

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newSecretsList(s *cli.Shell) *cobra.Command {
	var app string
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List an app's secrets, without their values",
		Long: `List an app's secrets. Values are never shown: they are encrypted until a machine
starts. The digest shows whether a value has changed.`,
		Example: "  bourse secrets list -a shop",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := secretsOf(s, app).List(c.Context())
			if err != nil {
				return hintSecrets(err, app)
			}
			t := cli.NewTable("NAME", "DIGEST", "UPDATED").Numbers(2).Narrow(0)
			none := "app " + app + " has no secrets; set one with: bourse secrets set NAME=VALUE"
			return cli.PrintList(s, list.Secrets, none, t, func(x *machinesapi.Secret) []string {
				return []string{cli.Clean(x.Name), cli.Clean(x.Digest), cli.Age(s.Now().Sub(x.UpdatedAt))}
			})
		},
	}
	s.BindApp(c, &app)
	return c
}
