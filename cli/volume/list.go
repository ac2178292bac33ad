package volume

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newList(s *cli.Shell) *cobra.Command {
	var app string
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List an app's volumes",
		Example: "  bourse volume list -a shop",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := listVolumes(c.Context(), s, app)
			if err != nil {
				return err
			}
			t := cli.NewTable("ID", "NAME", "STATE", "SIZE", "REGION", "MACHINE", "AGE").Numbers(3).Narrow(1)
			none := "app " + app + " has no volumes; make one: bourse volume create NAME --region REGION"
			return cli.PrintList(s, list, none, t, func(v *machinesapi.Volume) []string {
				state := string(v.State)
				if v.HostStatus != machinesapi.HostOK { // what it was when its worker last answered
					state = string(v.HostStatus)
				}
				return []string{string(v.ID), v.Name, state, cli.MiB(bourse.MiB(v.SizeGB) << 10), string(v.Region), cmp.Or(attachedTo(v), "-"), cli.Age(s.Now().Sub(v.CreatedAt))}
			})
		},
	}
	s.BindApp(c, &app)
	return c
}
