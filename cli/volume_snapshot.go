package cli

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func (s *shell) volumeSnapshot() *cobra.Command {
	c := noun("snapshot", "Take and list snapshots of a volume", s.snapshotCreate(), s.snapshotList())
	c.Aliases = []string{"snapshots"}
	return c
}

func (s *shell) snapshotCreate() *cobra.Command {
	var app string
	c := &cobra.Command{
		Use:   "create VOLUME",
		Short: "Take a snapshot, also while the volume is in use",
		Args:  exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := s.resolveVolume(c.Context(), app, args[0])
			if err != nil {
				return err
			}
			stop := spin(s.Err, "taking a snapshot of "+args[0])
			snap, err := s.client().CreateSnapshot(c.Context(), bourse.AppName(app), id)
			stop()
			if err != nil {
				return aboutVolume(err, app, id)
			}
			if s.json {
				return s.printJSON(snap)
			}
			return s.snapshotTable([]machinesapi.Snapshot{snap}).write(s.Out, s.Out.Width)
		},
	}
	s.bindApp(c, &app)
	return c
}

func (s *shell) snapshotList() *cobra.Command {
	var app string
	c := &cobra.Command{
		Use:     "list VOLUME",
		Aliases: []string{"ls"},
		Short:   "List a volume's snapshots; they outlive it",
		Args:    exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := s.resolveVolume(c.Context(), app, args[0])
			if err != nil {
				return err
			}
			list, err := s.client().Snapshots(c.Context(), bourse.AppName(app), id)
			if err != nil {
				return aboutVolume(err, app, id)
			}
			if s.json {
				return s.printJSON(list)
			}
			if len(list) == 0 {
				s.say("volume " + args[0] + " has no snapshots; take one: bourse volume snapshot create " + args[0])
				return nil
			}
			return s.snapshotTable(list).write(s.Out, s.Out.Width)
		},
	}
	s.bindApp(c, &app)
	return c
}

func (s *shell) snapshotTable(list []machinesapi.Snapshot) *table {
	t := newTable("SNAPSHOT", "STATUS", "SIZE", "VOLUME SIZE", "AGE", "KEPT", "BY").numbers(2, 3)
	for _, x := range list {
		by := "you"
		if x.Scheduled {
			by = "schedule"
		}
		t.row(string(x.ID), string(x.Status), bytesText(x.Size), bytesText(x.VolumeSize), age(s.Now().Sub(x.CreatedAt)), count(x.RetentionDays, "day"), by)
	}
	return t
}
