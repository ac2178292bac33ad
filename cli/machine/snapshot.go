package machine

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newSnapshot(s *cli.Shell) *cobra.Command {
	c := cli.Noun("snapshot", "Take and list volume snapshots", newSnapshotCreate(s), newSnapshotList(s))
	c.Aliases = []string{"snapshots"}
	return c
}

func newSnapshotCreate(s *cli.Shell) *cobra.Command {
	var app string
	c := &cobra.Command{
		Use:               "create VOLUME",
		Short:             "Take a snapshot of a volume, even while it is in use",
		Example:           "  bourse volume snapshot create data",
		Args:              cli.Exactly(1),
		ValidArgsFunction: completeVolume(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := resolveVolume(c.Context(), s, app, args[0])
			if err != nil {
				return err
			}
			stop := cli.Spin(s.Err, "taking a snapshot of "+args[0])
			snap, err := s.Client().Volumes(bourse.AppName(app)).Snapshot(c.Context(), id)
			stop()
			if err != nil {
				return hintVolume(err, app, id)
			}
			if s.JSON {
				return s.PrintJSON(snap)
			}
			return snapshotTable(s, []machinesapi.Snapshot{snap}).Write(s.Out)
		},
	}
	s.BindApp(c, &app)
	return c
}

func newSnapshotList(s *cli.Shell) *cobra.Command {
	var app string
	c := &cobra.Command{
		Use:               "list VOLUME",
		Aliases:           []string{"ls"},
		Short:             "List a volume's snapshots, which outlive the volume",
		Example:           "  bourse volume snapshot list data",
		Args:              cli.Exactly(1),
		ValidArgsFunction: completeVolume(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := resolveVolume(c.Context(), s, app, args[0])
			if err != nil {
				return err
			}
			list, err := s.Client().Volumes(bourse.AppName(app)).Snapshots(c.Context(), id)
			if err != nil {
				return hintVolume(err, app, id)
			}
			if s.JSON {
				return s.PrintJSON(list)
			}
			if len(list) == 0 {
				s.Note("volume " + args[0] + " has no snapshots; take one with: bourse volume snapshot create " + args[0])
				return nil
			}
			return snapshotTable(s, list).Write(s.Out)
		},
	}
	s.BindApp(c, &app)
	return c
}

func snapshotTable(s *cli.Shell, list []machinesapi.Snapshot) *cli.Table {
	t := cli.NewTable("SNAPSHOT", "STATUS", "SIZE", "VOLUME SIZE", "AGE", "RETENTION", "BY").Numbers(2, 3)
	for _, x := range list {
		by := "you"
		if x.Scheduled {
			by = "schedule"
		}
		t.Row(string(x.ID), string(x.Status), cli.Bytes(x.Size), cli.Bytes(x.VolumeSize), cli.Age(s.Now().Sub(x.CreatedAt)), cli.Count(x.RetentionDays, "day"), by)
	}
	return t
}
