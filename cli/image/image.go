// Package image has the commands of images on workers, one verb a file.
package image

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// New returns the commands of images.
func New(s *cli.Shell) *cobra.Command {
	c := cli.Noun("image", "See, fetch and remove images on workers, and push them", newList(s), newPull(s), newPrune(s), newPush(s))
	c.Aliases = []string{"images"}
	return c
}

// targetFlags describe which workers are meant.
type targetFlags struct{ region, worker string }

func (f *targetFlags) bind(s *cli.Shell, c *cobra.Command, flags *pflag.FlagSet) {
	flags.StringVarP(&f.region, "region", "r", "", "only the workers of this `region`")
	flags.StringVarP(&f.worker, "worker", "w", "", "only this `worker`")
	s.CompleteRegions(c)
	cli.CompleteFlag(c, "worker", s.Workers)
}

func (f *targetFlags) target() machinesapi.ImageTarget {
	return machinesapi.ImageTarget{Region: bourse.Region(f.region), Worker: bourse.WorkerID(f.worker)}
}

// explain returns, for an error that says that what is meant is not there, the
// one that says what there is.
func (f *targetFlags) explain(ctx context.Context, s *cli.Shell, err error) error {
	if bourse.CodeOf(err) != bourse.CodeNotFound {
		return err
	}
	return cmp.Or(s.CheckFilters(ctx, bourse.Region(f.region), bourse.WorkerID(f.worker)), err)
}
