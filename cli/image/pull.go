package image

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newPull(s *cli.Shell) *cobra.Command {
	var f targetFlags
	c := &cobra.Command{
		Use:   "pull IMAGE",
		Short: "Have workers fetch an image before a machine needs it",
		Example: `  bourse image pull nginx --region gru
  bourse image pull registry.example.com/app@sha256:… --worker gru-1`,
		Args:              cli.Exactly(1),
		ValidArgsFunction: cli.Complete(s.Images),
		RunE:              func(c *cobra.Command, args []string) error { return pull(c.Context(), s, args[0], f.target()) },
	}
	f.bind(s, c, c.Flags())
	return c
}

// pull shows a bar for each worker, and fails if any of them did.
func pull(ctx context.Context, s *cli.Shell, image string, target machinesapi.ImageTarget) error {
	bars := cli.Bars{To: s.Err}
	var problems []error
	asked := 0
	err := s.Client().PullImage(ctx, machinesapi.PullImage{Image: image, ImageTarget: target}, func(l machinesapi.PullLine) error {
		if s.JSON {
			return s.PrintLine(l)
		}
		name := string(l.Worker)
		switch err := l.Err(); {
		case err != nil:
			problems = append(problems, bourse.Errorf(bourse.CodeOf(err), "worker %s: %w", l.Worker, err))
			if s.Err.TTY { // a bar that ends; elsewhere the error is printed once, at the end
				bars.Set(cli.Bar{Name: name, Status: "failed", Over: true})
			}
			asked++
		case l.Done && l.Image != nil:
			bars.Set(cli.PullBar(name, &bourse.Image{Bytes: l.Image.Bytes}))
			asked++
		case l.Image != nil:
			bars.Set(cli.PullBar(name, l.Image))
		}
		return nil
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return cli.Interrupted("interrupted; the workers go on pulling: bourse image list")
	case err != nil:
		return err
	case len(problems) > 0:
		return errors.Join(problems...)
	case asked == 0 && !s.JSON:
		return bourse.Errorf(bourse.CodeNotFound, "no worker there runs images")
	}
	return nil
}
