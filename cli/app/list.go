package app

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newList(s *cli.Shell) *cobra.Command {
	var org string
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List apps",
		Example: "  bourse app list",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := s.Client().Apps(c.Context(), org)
			if err != nil {
				return err
			}
			t := cli.NewTable("NAME", "STATUS", "MACHINES", "ORG", "AGE").Numbers(2, 4).Narrow(3)
			return cli.PrintList(s, list, "no apps; to create the first one: bourse machine run host -- sleep 60", t, func(a *machinesapi.App) []string {
				return []string{string(a.Name), string(a.Status), fmt.Sprint(a.MachineCount), a.Organization.Slug, appAge(s.Now(), a.CreatedAt)}
			})
		},
	}
	c.Flags().StringVarP(&org, "org", "o", "", "only apps of this `organization`")
	return c
}

// appAge formats the time since an app was created. It returns "-" for the default app, which
// was never created.
func appAge(now time.Time, createdAt int64) string {
	if createdAt == 0 {
		return "-"
	}
	return cli.Age(now.Sub(time.UnixMilli(createdAt)))
}
