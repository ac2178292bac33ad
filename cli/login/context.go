package login

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

// NewContext returns the "context" commands.
func NewContext(s *cli.Shell) *cobra.Command {
	c := cli.Noun("context", "List and select the clusters that you have logged in to", newList(s), newUse(s))
	c.Aliases = []string{"contexts"}
	return c
}

func newList(s *cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the clusters that you have logged in to",
		Long: `List the clusters that you have logged in to. The context "dev" is always the
cluster that "bourse dev" runs on this host. A * marks the current context, which
commands use unless --api, --context, BOURSE_API or BOURSE_CONTEXT select another one.
If there is no current context, commands use the API at ` + cli.DefaultAPI + `.`,
		Example: "  bourse context list",
		Args:    cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := cli.LoadContexts(s.Getenv)
			if err != nil {
				return err
			}
			var list []Cluster
			for _, name := range all.Names() {
				list = append(list, describe(all, s.Getenv, name))
			}
			t := cli.NewTable("", "NAME", "API", "CA", "TOKEN").Narrow(2)
			return cli.PrintList(s, list, "", t, func(c *Cluster) []string {
				mark, ca, token := "", "host's", "-"
				if c.Current {
					mark = "*"
				}
				if c.CA {
					ca = "own"
				}
				if c.Token {
					token = "stored"
				}
				return []string{mark, c.Name, c.API, ca, token}
			})
		},
	}
}

func newUse(s *cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use:               "use NAME",
		Short:             "Select the cluster that commands use",
		Example:           "  bourse context use production\n  bourse context use dev",
		Args:              cli.Exactly(1),
		ValidArgsFunction: complete(s),
		RunE: func(_ *cobra.Command, args []string) error {
			name := args[0]
			all, err := cli.UpdateContexts(s.Getenv, func(all *cli.Contexts) error {
				all.Current = name
				_, err := all.Find(s.Getenv, name)
				return err
			})
			if err != nil {
				return err
			}
			if s.Getenv("BOURSE_API") != "" || s.Getenv("BOURSE_CONTEXT") != "" {
				s.Note("warning: BOURSE_API or BOURSE_CONTEXT is set and takes precedence; unset it")
			}
			if s.JSON {
				return s.PrintJSON(describe(all, s.Getenv, name))
			}
			_, err = fmt.Fprintf(s.Out, "%s  current\n", name)
			return err
		},
	}
}

// NewLogout returns the "logout" command.
func NewLogout(s *cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use:   "logout [NAME]",
		Short: "Remove a cluster's stored address, CA and token",
		Long: `Remove the stored address, CA and token of the current context, or of the context
NAME. The token itself stays valid; to revoke it, run "bourse token revoke".`,
		Example:           "  bourse logout\n  bourse logout production",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: complete(s),
		RunE: func(_ *cobra.Command, args []string) error {
			var name string
			_, err := cli.UpdateContexts(s.Getenv, func(all *cli.Contexts) error {
				if name = all.Current; len(args) > 0 {
					name = args[0]
				}
				switch name {
				case "":
					return cli.Hint(bourse.Errorf(bourse.CodeInvalid, "there is no current context"), "bourse logout NAME, with a name from bourse context list")
				case cli.DevContext:
					return bourse.Errorf(bourse.CodeInvalid, "nothing is stored for context %s, the cluster of \"bourse dev\"", name)
				}
				if _, err := all.Find(s.Getenv, name); err != nil {
					return err
				}
				delete(all.ByName, name)
				if all.Current == name {
					all.Current = ""
				}
				return nil
			})
			if err != nil {
				return err
			}
			if s.JSON {
				return s.PrintJSON(Cluster{Name: name})
			}
			_, err = fmt.Fprintf(s.Out, "%s  logged out\n", cli.Clean(name))
			return err
		},
	}
}

func describe(all *cli.Contexts, getenv func(string) string, name string) Cluster {
	one, _ := all.Find(getenv, name) // Find cannot fail, because name is a context's name
	return Cluster{Name: name, API: one.API, CA: one.CA != "", Token: one.Token != "", Current: name == all.Current}
}

func complete(s *cli.Shell) cobra.CompletionFunc {
	return cli.Complete(func(context.Context) ([]cobra.Completion, error) {
		all, err := cli.LoadContexts(s.Getenv)
		if err != nil {
			return nil, err
		}
		return all.Names(), nil
	})
}
