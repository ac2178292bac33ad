package cli

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func (s *shell) volumeList() *cobra.Command {
	var app string
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List an app's volumes",
		Args:    none,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := s.listVolumes(c.Context(), app)
			if err != nil {
				return err
			}
			if s.json {
				return s.printJSON(list)
			}
			if len(list) == 0 {
				s.say("app " + app + " has no volumes; make one: bourse volume create NAME --region REGION")
				return nil
			}
			return s.volumeTable(list).write(s.Out, s.Out.Width)
		},
	}
	s.bindApp(c, &app)
	return c
}

func (s *shell) volumeTable(list []machinesapi.Volume) *table {
	t := newTable("ID", "NAME", "STATE", "SIZE", "REGION", "MACHINE", "AGE").numbers(3).narrow(1)
	for i := range list {
		v := &list[i]
		state := string(v.State)
		if v.HostStatus != machinesapi.HostOK { // what it was when its worker was last heard
			state = string(v.HostStatus)
		}
		t.row(string(v.ID), v.Name, state, mib(bourse.MiB(v.SizeGB)<<10), string(v.Region), dash(attachedTo(v)), age(s.Now().Sub(v.CreatedAt)))
	}
	return t
}

func (s *shell) volumeShow() *cobra.Command {
	var app string
	c := &cobra.Command{
		Use:   "show VOLUME",
		Short: "Show a volume and its snapshots",
		Args:  exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := s.resolveVolume(c.Context(), app, args[0])
			if err != nil {
				return err
			}
			v, err := s.client().Volume(c.Context(), bourse.AppName(app), id)
			if err != nil {
				return aboutVolume(err, app, id)
			}
			if err := s.printVolume(&v); err != nil || s.json {
				return err
			}
			list, err := s.client().Snapshots(c.Context(), bourse.AppName(app), id)
			if err != nil || len(list) == 0 {
				return err
			}
			s.Out.Write([]byte("\n")) //nolint:errcheck // the table's own write tells
			return s.snapshotTable(list).write(s.Out, s.Out.Width)
		},
	}
	s.bindApp(c, &app)
	return c
}
