package machine

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/place"
	"github.com/bourse-dev/bourse/machinesapi"
)

// volumeFlags are the flags of "volume create" and "volume fork".
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
	flags.StringVarP(&f.region, "region", "r", "", "`region` of the volume and of every machine that mounts it")
	flags.StringVarP(&f.size, "size", "s", "", "`size` in whole GiB, such as 10GiB or 10 (default: 1, or that of the source)")
	flags.BoolVar(&f.anyZone, "no-unique-zone", false, "allow a worker that already has a volume of this name")
	flags.BoolVar(&f.noDaily, "no-daily-snapshots", false, "take no daily snapshots")
	flags.IntVar(&f.retention, "snapshot-retention", 0, "number of `days` to keep snapshots, 1 to 60 (default: 5)")
	flags.StringArrayVar(&f.require, "require", nil, "requirement on the worker, `NAME=VALUE`; may be repeated")
	f.compute.Bind(flags)
	s.CompleteRegions(c)
}

// request builds the API request from the flags.
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

// parseGB parses a size in whole GiB. "" means 0.
func parseGB(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	if n, ok := cli.ParsePort(s); ok { // as in flyctl, a number without a unit is in GiB
		return int64(n), nil
	}
	size, err := cli.ParseMiB(s)
	if err == nil && (size == 0 || size%1024 != 0) {
		err = bourse.Errorf(bourse.CodeInvalid, "%s: use whole GiB such as 10GiB", bourse.Quoted(s))
	}
	return int64(size) / 1024, err
}

func newVolumeCreate(s *cli.Shell) *cobra.Command {
	f := volumeFlags{}
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a volume",
		Long: `Create a volume on one worker of a region. Machines that mount it run on that
worker. With --vm-size and similar flags, a worker is chosen that also has capacity
for such a machine.`,
		Example: `  bourse volume create data --region gru --size 10GiB --vm-size performance-2x
  bourse machine run postgres -r gru -v data:/var/lib/postgresql/data`,
		Args: cli.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			if f.region == "" {
				return bourse.Errorf(bourse.CodeInvalid, "--region is required, because a volume stays where it is created")
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
			stop := cli.Spin(s.Err, "creating volume "+args[0])
			v, err := s.Client().Volumes(bourse.AppName(f.app)).Create(c.Context(), req, order)
			stop()
			if err != nil {
				return place.Explain(s, err, f.app, order)
			}
			return printVolume(s, &v)
		},
	}
	f.bind(s, c)
	c.Flags().BoolVar(&f.encrypted, "encrypted", false, "encrypt the volume on the worker's disk")
	c.Flags().StringVar(&f.snapshot, "snapshot-id", "", "`snapshot` to create the volume from")
	return c
}
