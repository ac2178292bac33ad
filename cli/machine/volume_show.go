package machine

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newVolumeShow(s *cli.Shell) *cobra.Command {
	var app string
	c := &cobra.Command{
		Use:               "show VOLUME",
		Short:             "Show a volume and its snapshots",
		Example:           "  bourse volume show data",
		Args:              cli.Exactly(1),
		ValidArgsFunction: completeVolume(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := resolveVolume(c.Context(), s, app, args[0])
			if err != nil {
				return err
			}
			v, err := s.Client().Volumes(bourse.AppName(app)).Get(c.Context(), id)
			if err != nil {
				return hintVolume(err, app, id)
			}
			if err := printVolume(s, &v); err != nil || s.JSON {
				return err
			}
			list, err := s.Client().Volumes(bourse.AppName(app)).Snapshots(c.Context(), id)
			if err != nil || len(list) == 0 {
				return err
			}
			s.Out.Write([]byte("\n")) //nolint:errcheck // writing the table would also fail
			return snapshotTable(s, list).Write(s.Out)
		},
	}
	s.BindApp(c, &app)
	return c
}

func printVolume(s *cli.Shell, v *machinesapi.Volume) error {
	if s.JSON {
		return s.PrintJSON(v)
	}
	var f cli.Facts
	f.Add("volume", string(v.ID)+"  "+v.Name)
	f.Add("state", string(v.State))
	f.Add("error", v.Error)
	f.Add("app", string(v.App))
	f.Add("location", fmt.Sprintf("region %s, worker %s", v.Region, cmp.Or(string(v.Worker), "unknown")))
	f.Add("size", cli.MiB(bourse.MiB(v.SizeGB)<<10))
	if u := v.VolumeUse; u != nil {
		f.Add("used", cli.Bytes(u.BytesUsed))
	}
	f.Add("machine", attachedTo(v))
	if v.Encrypted {
		f.Add("encrypted", "yes")
	}
	keep := cli.Count(v.SnapshotRetention, "day")
	if v.AutoBackup {
		keep += ", one per day"
	}
	f.Add("snapshots", "kept "+keep)
	return f.Write(s.Out)
}
