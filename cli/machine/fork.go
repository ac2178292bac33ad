package machine

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/place"
	"github.com/bourse-dev/bourse/machinesapi"
)

const (
	forkStep = 500 * time.Millisecond // polling interval while a volume is being copied
	forkWait = time.Hour
)

func newFork(s *cli.Shell) *cobra.Command {
	f := volumeFlags{}
	var name string
	var detach bool
	c := &cobra.Command{
		Use:   "fork VOLUME",
		Short: "Copy a volume, by default to another worker",
		Long: `Copy a volume's current contents to another worker in its region, or to another
region. The copy is verified, and resumes after an interruption.`,
		Example: `  bourse volume fork data
  bourse volume fork data --region mad --name data_mad`,
		Args:              cli.Exactly(1),
		ValidArgsFunction: completeVolume(s, &f.app),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := resolveVolume(c.Context(), s, f.app, args[0])
			if err != nil {
				return err
			}
			from, err := s.Client().Volumes(bourse.AppName(f.app)).Get(c.Context(), id)
			if err != nil {
				return hintVolume(err, f.app, id)
			}
			f.region = cmp.Or(f.region, string(from.Region))
			req, err := f.request(cmp.Or(name, from.Name))
			if err != nil {
				return err
			}
			req.Source = id
			if from.Encrypted {
				req.Encrypted = &from.Encrypted
			}
			req.FirstTry = true
			order := bourse.NewOrderID()
			v, err := s.Client().Volumes(bourse.AppName(f.app)).Create(c.Context(), req, order)
			if err != nil {
				return place.Explain(s, err, f.app, order)
			}
			if !detach {
				if v, err = await(c.Context(), s, f.app, &v); err != nil {
					return err
				}
			}
			return printVolume(s, &v)
		},
	}
	f.bind(s, c)
	c.Flags().StringVarP(&name, "name", "n", "", "`name` of the copy (default: the volume's name)")
	c.Flags().BoolVarP(&detach, "detach", "d", false, "do not wait until the copy is complete")
	return c
}

// await waits until all of a volume's data has been copied.
func await(ctx context.Context, s *cli.Shell, app string, v *machinesapi.Volume) (machinesapi.Volume, error) {
	defer cli.Spin(s.Err, "copying to volume "+string(v.ID))()
	ctx, cancel := context.WithTimeout(ctx, forkWait)
	defer cancel()
	for !v.State.Usable() {
		if v.State == bourse.VolumeFailed || !living(v.State) {
			return *v, bourse.Errorf(bourse.CodeUnavailable, "volume %s is %s: %s", v.ID, v.State, cmp.Or(v.Error, "for an unknown reason"))
		}
		timer := time.NewTimer(forkStep)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return *v, cli.Hint(bourse.Errorf(bourse.CodeTimeout, "volume %s is not complete yet; the copy continues", v.ID), "bourse volume show "+string(v.ID))
		}
		now, err := s.Client().Volumes(bourse.AppName(app)).Get(ctx, v.ID)
		if err != nil {
			return *v, hintVolume(err, app, v.ID)
		}
		v = &now
	}
	return *v, nil
}
