package machine

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newVolumeList(s *cli.Shell) *cobra.Command {
	var app, org string
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List volumes",
		Example: "  bourse volume list -a shop\n  bourse volume list --org acme",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			none := "app " + app + " has no volumes; create one with: bourse volume create NAME --region REGION"
			read := func() ([]machinesapi.Volume, error) { return listVolumes(c.Context(), s, app) }
			if org != "" {
				if c.Flags().Changed("app") {
					return bourse.Errorf(bourse.CodeInvalid, "--org and --app are mutually exclusive")
				}
				none = "organization " + cli.Clean(org) + " has no volumes"
				read = func() ([]machinesapi.Volume, error) { return volumesOfOrg(c.Context(), s, org) }
			}
			list, err := read()
			if err != nil {
				return err
			}
			return cli.PrintList(s, list, none, volumeTable(org != ""), func(v *machinesapi.Volume) []string { return volumeRow(s, v) })
		},
	}
	s.BindApp(c, &app).Unless("org")
	c.Flags().StringVarP(&org, "org", "o", "", "volumes of all apps of this `organization`")
	return c
}

// volumesOfOrg returns the volumes of every app in an organization.
func volumesOfOrg(ctx context.Context, s *cli.Shell, org string) ([]machinesapi.Volume, error) {
	list, silent, err := s.Client().Org(org).Volumes(ctx)
	s.WarnMissing(silent, "volumes")
	return list, err
}

// volumeTable returns a table for a list of volumes. If apps is set, it has a column for
// the app.
func volumeTable(apps bool) *cli.Table {
	t := cli.NewTable("ID", "NAME", "APP", "STATE", "SIZE", "REGION", "MACHINE", "AGE").Numbers(4).Narrow(1)
	if !apps {
		t.Hide(2)
	}
	return t
}

func volumeRow(s *cli.Shell, v *machinesapi.Volume) []string {
	state := string(v.State)
	if v.HostStatus != machinesapi.HostOK { // the worker does not answer, so the state may be outdated
		state = string(v.HostStatus)
	}
	size := cli.MiB(bourse.MiB(v.SizeGB) << 10)
	return []string{string(v.ID), v.Name, string(v.App), state, size, string(v.Region), cmp.Or(attachedTo(v), "-"), cli.Age(s.Now().Sub(v.CreatedAt))}
}
