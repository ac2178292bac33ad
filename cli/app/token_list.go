package app

import (
	"cmp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newTokenList(s *cli.Shell) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the tokens that you may revoke, and what they permit",
		Long: `List the tokens that you may revoke, and what they permit. Tokens in the brokers'
token file are not included. CREATED BY is the name of the token that was used
to create a token.`,
		Example: "  bourse token list",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := api(s).List(c.Context())
			if err != nil {
				return err
			}
			none := "no tokens; create one with: bourse token create ci --app shop"
			if !all && len(list) > 0 {
				list = slices.DeleteFunc(list, func(t machinesapi.Token) bool { return !isValid(&t, s.Now()) })
				none = "no valid tokens; for revoked and expired ones: bourse token list --all"
			}
			t := cli.NewTable("ID", "NAME", "FOR", "STATE", "AGE", "CREATED BY").Numbers(4).Narrow(2, 1).Drop(5, 4)
			return cli.PrintList(s, list, none, t, func(t *machinesapi.Token) []string {
				return []string{t.ID, t.Name, permissions(t), validity(t, s.Now()), cli.Age(s.Now().Sub(t.CreatedAt)), cmp.Or(t.MadeBy, "-")}
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also list revoked and expired tokens")
	return c
}
