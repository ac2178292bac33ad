package machine

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/place"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newPlace(s *cli.Shell) *cobra.Command {
	var (
		org, region, volume string
		count               int64
		size                place.Size
	)
	c := &cobra.Command{
		Use:   "place",
		Short: "Show where there is room for machines of a given size",
		Long: `Show in which regions, and on how many workers, there is room for machines of a
given size. All workers are asked, but nothing is reserved, so the answer may be
outdated a moment later; use "reservation create" to hold capacity. Without --count,
all available room is shown. If there is less room than requested, the command
exits with status 6.`,
		Example: `  bourse machine place --region gru,any --count 4 --vm-size performance-2x
  bourse machine place --vm-memory 2GiB --volume-size 10GiB`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			guest, err := size.Guest()
			if err != nil {
				return err
			}
			disk, err := volumeBytes(volume)
			if err != nil {
				return cli.FlagError("--volume-size", err)
			}
			if count < 0 || c.Flags().Changed("count") && count == 0 {
				return bourse.Errorf(bourse.CodeInvalid, "--count %d: use 1 or more", count)
			}
			stop := cli.Spin(s.Err, "asking the workers")
			list, err := s.Client().Org(org).Placements(c.Context(), machinesapi.PlacementRequest{
				Region: region, Count: uint64(count), Compute: guest, VolumeBytes: disk,
			})
			stop()
			if bourse.CodeOf(err) == bourse.CodeInvalid {
				return cli.Hint(err, "bourse region list")
			}
			if err != nil {
				return err
			}
			t := cli.NewTable("REGION", "MACHINES", "WORKERS").Numbers(1, 2)
			if len(list) > 0 || s.JSON {
				err = cli.PrintList(s, list, "", t, func(p *machinesapi.RegionPlacement) []string {
					return []string{string(p.Region), fmt.Sprint(p.Count), fmt.Sprint(p.Concurrency)}
				})
				if err != nil {
					return err
				}
			}
			return checkCapacity(list, count)
		},
	}
	flags := c.Flags()
	flags.StringVarP(&org, "org", "o", bourse.DefaultOrg, "`organization` of the machines")
	flags.StringVarP(&region, "region", "r", "", "`regions` in order of preference, such as gru,eu or any (default: the broker's, then any)")
	flags.Int64VarP(&count, "count", "n", 0, "`number` of machines (default: as many as there is room for)")
	flags.StringVar(&volume, "volume-size", "", "`size` of each machine's volume, such as 10GiB; a number alone is in GiB")
	size.Bind(flags)
	s.CompleteRegions(c)
	return c
}

// volumeBytes parses the size of a volume and returns it in bytes. A number without a unit
// is in GiB. "" means 0.
func volumeBytes(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	if n, ok := cli.ParsePort(text); ok {
		return uint64(n) << 30, nil
	}
	size, err := cli.ParseMiB(text)
	return uint64(size) << 20, err
}

// checkCapacity returns an error if the listed regions together have room for fewer than want
// machines. If want is 0, it requires room for one.
func checkCapacity(list []machinesapi.RegionPlacement, want int64) error {
	var n int64
	for i := range list {
		n += list[i].Count
	}
	if n >= max(1, want) {
		return nil
	}
	err := bourse.Errorf(bourse.CodeInsufficient, "there is room for %d of %d machines", n, max(1, want))
	return cli.AfterResult(cli.Hint(err, "bourse quote host, with the same flags for region and size"))
}
