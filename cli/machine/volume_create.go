package machine

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/place"
	"github.com/bourse-dev/bourse/machinesapi"
)

// volumeFlags describe what volume is wanted.
type volumeFlags struct {
	app, region, size, snapshot string
	encrypted, anyZone, noDaily bool
	retention                   int
	compute                     place.Size
	require                     []string
}

func (f *volumeFlags) bind(s *cli.Shell, c *cobra.Command) {
	flags := c.Flags()
	s.BindApp(c, &f.app)
	flags.StringVarP(&f.region, "region", "r", "", "`region` of the volume, and so of every machine that mounts it")
	flags.StringVarP(&f.size, "size", "s", "", "`size` in whole gigabytes, such as 10GiB or 10 (default 1)")
	flags.BoolVar(&f.anyZone, "no-unique-zone", false, "may be on a worker that has a volume of this name")
	flags.BoolVar(&f.noDaily, "no-daily-snapshots", false, "take no snapshot a day")
	flags.IntVar(&f.retention, "snapshot-retention", 0, "keep snapshots so many `days`, 1 to 60 (default 5)")
	flags.StringArrayVar(&f.require, "require", nil, "what the worker must have, `NAME=VALUE`; may be repeated")
	f.compute.Bind(flags)
	s.CompleteRegions(c)
}

// request makes the API's request of the flags.
func (f *volumeFlags) request(name string) (machinesapi.CreateVolume, error) {
	req := machinesapi.CreateVolume{Name: name, Region: f.region}
	gigabytes, err := parseGB(f.size)
	if err != nil {
		return req, cli.FlagError("--size", err)
	}
	if gigabytes > 0 {
		req.SizeGB = &gigabytes
	}
	unique, daily := !f.anyZone, !f.noDaily
	req.UniqueZone, req.AutoBackup = &unique, &daily
	if f.encrypted {
		req.Encrypted = &f.encrypted
	}
	if f.retention != 0 {
		req.SnapshotRetention = &f.retention
	}
	if f.compute != (place.Size{}) {
		g, err := f.compute.Guest()
		if err != nil {
			return req, err
		}
		req.Compute = &machinesapi.Compute{Guest: *g}
	}
	req.Requirements, err = place.ParseRequirements(f.require)
	return req, cli.FlagError("--require", err)
}

// parseGB reads a size in whole gigabytes; 0 for "".
func parseGB(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	if n, ok := cli.ParsePort(s); ok { // a number alone is gigabytes, as flyctl has it
		return int64(n), nil
	}
	size, err := cli.ParseMiB(s)
	if err == nil && (size == 0 || size%1024 != 0) {
		err = bourse.Errorf(bourse.CodeInvalid, "%s: use whole gigabytes such as 10GiB", bourse.Quoted(s))
	}
	return int64(size) / 1024, err
}

func newVolumeCreate(s *cli.Shell) *cobra.Command {
	f := volumeFlags{}
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a volume",
		Long: `Make a volume on one worker of a region. A machine that mounts it runs on that
worker. With --vm-size and the like a worker is chosen that has capacity for such a
machine, too.`,
		Example: `  bourse volume create data --region gru --size 10GiB --vm-size performance-2x
  bourse machine run postgres -r gru -v data:/var/lib/postgresql/data`,
		Args: cli.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			if f.region == "" {
				return bourse.Errorf(bourse.CodeInvalid, "--region is required: a volume stays where it is made")
			}
			if f.size == "" && f.snapshot == "" {
				f.size = "1"
			}
			req, err := f.request(args[0])
			if err != nil {
				return err
			}
			req.Snapshot = bourse.SnapshotID(f.snapshot)
			req.FirstTry = true
			order := bourse.NewOrderID()
			stop := cli.Spin(s.Err, "making volume "+args[0])
			v, err := s.Client().Volumes(bourse.AppName(f.app)).Create(c.Context(), req, order)
			stop()
			if err != nil {
				return place.Explain(s, err, f.app, order)
			}
			return printVolume(s, &v)
		},
	}
	f.bind(s, c)
	c.Flags().BoolVar(&f.encrypted, "encrypted", false, "encrypt what is on its worker's disk")
	c.Flags().StringVar(&f.snapshot, "snapshot-id", "", "fill it from a `snapshot`")
	return c
}
