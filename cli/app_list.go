package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/machinesapi"
)

func (s *shell) appList() *cobra.Command {
	var org string
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the apps",
		Args:    none,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := s.client().Apps(c.Context(), org)
			if err != nil {
				return err
			}
			if s.json {
				if list == nil {
					list = []machinesapi.App{}
				}
				return s.printJSON(list)
			}
			if len(list) == 0 {
				s.say("no apps; the first is made by: bourse machine run host -- sleep 60")
				return nil
			}
			t := newTable("NAME", "STATUS", "MACHINES", "ORG", "AGE").numbers(2, 4).narrow(3)
			for _, a := range list {
				t.row(string(a.Name), string(a.Status), fmt.Sprint(a.MachineCount), a.Organization.Slug, appAge(s.Now(), a.CreatedAt))
			}
			return t.write(s.Out, s.Out.Width)
		},
	}
	c.Flags().StringVarP(&org, "org", "o", "", "only of this `organisation`")
	return c
}

// appAge is empty for the app that exists without having been made.
func appAge(now time.Time, createdAt int64) string {
	if createdAt == 0 {
		return "-"
	}
	return age(now.Sub(time.UnixMilli(createdAt)))
}
