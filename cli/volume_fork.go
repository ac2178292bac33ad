package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

const (
	forkStep = 500 * time.Millisecond // between two looks at a volume that is being filled
	forkWait = time.Hour
)

func (s *shell) volumeFork() *cobra.Command {
	f := volumeFlags{}
	var name string
	var detach bool
	c := &cobra.Command{
		Use:   "fork VOLUME",
		Short: "Copy a volume, by default to another worker",
		Long: `Copy a volume as it is at this moment, to another worker of its region or to
another region. The copy is verified, and goes on after an interruption.`,
		Example: `  bourse volume fork data
  bourse volume fork data --region mad --name data_mad`,
		Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := s.resolveVolume(c.Context(), f.app, args[0])
			if err != nil {
				return err
			}
			from, err := s.client().Volume(c.Context(), bourse.AppName(f.app), id)
			if err != nil {
				return aboutVolume(err, f.app, id)
			}
			f.region = orElse(f.region, string(from.Region))
			req, err := f.request(orElse(name, from.Name))
			if err != nil {
				return err
			}
			req.Source = id
			if from.Encrypted {
				req.Encrypted = &from.Encrypted
			}
			req.FirstTry = true
			order := bourse.NewOrderID()
			v, err := s.client().CreateVolume(c.Context(), bourse.AppName(f.app), req, order)
			if err != nil {
				return s.explainCreate(err, f.app, order)
			}
			if !detach {
				if v, err = s.awaitVolume(c.Context(), f.app, &v); err != nil {
					return err
				}
			}
			return s.printVolume(&v)
		},
	}
	f.bind(s, c)
	c.Flags().StringVarP(&name, "name", "n", "", "`name` of the copy (default: that of the volume)")
	c.Flags().BoolVarP(&detach, "detach", "d", false, "do not wait for the copy to be whole")
	return c
}

// awaitVolume waits until a volume is filled.
func (s *shell) awaitVolume(ctx context.Context, app string, v *machinesapi.Volume) (machinesapi.Volume, error) {
	defer spin(s.Err, "copying to volume "+string(v.ID))()
	ctx, cancel := context.WithTimeout(ctx, forkWait)
	defer cancel()
	for !v.State.Usable() {
		if v.State == bourse.VolumeFailed || !living(v.State) {
			return *v, bourse.Errorf(bourse.CodeUnavailable, "volume %s is %s: %s", v.ID, v.State, orElse(v.Error, "nobody knows why"))
		}
		timer := time.NewTimer(forkStep)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return *v, hint(bourse.Errorf(bourse.CodeTimeout, "volume %s is not whole yet; the copy goes on", v.ID), "bourse volume show "+string(v.ID))
		}
		now, err := s.client().Volume(ctx, bourse.AppName(app), v.ID)
		if err != nil {
			return *v, aboutVolume(err, app, v.ID)
		}
		v = &now
	}
	return *v, nil
}
