package deploy

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// NewImage returns the "bourse image" commands.
func NewImage(s *cli.Shell) *cobra.Command {
	c := cli.Noun("image", "List, pull and remove images on workers, and push images", newImageList(s), newImagePull(s), newImagePrune(s), newImagePush(s))
	c.Aliases = []string{"images"}
	return c
}

// workerFlags select workers by region or id.
type workerFlags struct{ region, worker string }

func (f *workerFlags) bind(s *cli.Shell, c *cobra.Command, flags *pflag.FlagSet) {
	flags.StringVarP(&f.region, "region", "r", "", "only the workers of this `region`")
	flags.StringVarP(&f.worker, "worker", "w", "", "only this `worker`")
	s.CompleteRegions(c)
	cli.CompleteFlag(c, "worker", s.Workers)
}

func (f *workerFlags) target() machinesapi.ImageTarget {
	return machinesapi.ImageTarget{Region: bourse.Region(f.region), Worker: bourse.WorkerID(f.worker)}
}

// explain replaces a not_found error with one that names the missing region or worker.
func (f *workerFlags) explain(ctx context.Context, s *cli.Shell, err error) error {
	if bourse.CodeOf(err) != bourse.CodeNotFound {
		return err
	}
	return cmp.Or(s.CheckFilters(ctx, bourse.Region(f.region), bourse.WorkerID(f.worker)), err)
}

func newImageList(s *cli.Shell) *cobra.Command {
	var f workerFlags
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the images that workers have",
		Example: "  bourse image list --region gru",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, silent, err := s.Client().Images(c.Context(), f.target())
			if err != nil {
				return f.explain(c.Context(), s, err)
			}
			s.WarnMissing(silent, "images")
			return printImages(s, list, "no worker has an image; to pull one: bourse image pull IMAGE")
		},
	}
	f.bind(s, c, c.Flags())
	return c
}

func printImages(s *cli.Shell, list []machinesapi.WorkerImage, none string) error {
	t := cli.NewTable("IMAGE", "DIGEST", "WORKER", "PULLED", "ON DISK", "USED", "STATE").Numbers(3, 4).Narrow(0, 1)
	return cli.PrintList(s, list, none, t, func(x *machinesapi.WorkerImage) []string {
		name := x.Ref
		name.Digest = ""
		used := "-"
		if !x.UsedAt.IsZero() {
			used = cli.Age(s.Now().Sub(x.UsedAt)) + " ago"
		}
		return []string{shortImage(name), shortDigest(x.Ref.Digest), string(x.Worker), cli.Bytes(x.Bytes), cli.Bytes(x.Disk), used, imageState(&x.Image)}
	})
}

// shortImage omits the default registry from an image name.
func shortImage(r bourse.ImageRef) string {
	s := r.String()
	for _, usual := range []string{bourse.DefaultRegistry + "/library/", bourse.DefaultRegistry + "/"} {
		if rest, ok := strings.CutPrefix(s, usual); ok {
			return rest
		}
	}
	return s
}

// shortDigest returns the first 12 digits of a digest.
func shortDigest(d string) string {
	_, hex, _ := strings.Cut(d, ":")
	return hex[:min(len(hex), 12)]
}

func imageState(i *bourse.Image) string {
	switch {
	case i.Pull != nil:
		return i.Pull.Status
	case i.InUse:
		return "in use"
	}
	return "ready"
}

func newImagePull(s *cli.Shell) *cobra.Command {
	var f workerFlags
	c := &cobra.Command{
		Use:   "pull IMAGE",
		Short: "Pull an image on workers before a machine needs it",
		Example: `  bourse image pull nginx --region gru
  bourse image pull registry.example.com/app@sha256:… --worker gru-1`,
		Args:              cli.Exactly(1),
		ValidArgsFunction: cli.Complete(s.Images),
		RunE:              func(c *cobra.Command, args []string) error { return pullImage(c.Context(), s, args[0], f.target()) },
	}
	f.bind(s, c, c.Flags())
	return c
}

// pullImage pulls an image on all matching workers and shows a progress bar for each. It
// fails if the pull fails on any worker.
func pullImage(ctx context.Context, s *cli.Shell, image string, target machinesapi.ImageTarget) error {
	bars := cli.Bars{Out: s.Err}
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
			if s.Err.TTY { // without a terminal, the error is printed only once, at the end
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
		return cli.Interrupted("interrupted; the workers continue to pull: bourse image list")
	case err != nil:
		return err
	case len(problems) > 0:
		return errors.Join(problems...)
	case asked == 0 && !s.JSON:
		return bourse.Errorf(bourse.CodeNotFound, "no matching worker can run images")
	}
	return nil
}

func newImagePrune(s *cli.Shell) *cobra.Command {
	var f workerFlags
	c := &cobra.Command{
		Use:     "prune",
		Short:   "Remove the images that no machine uses",
		Example: "  bourse image prune --worker gru-1",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, silent, err := s.Client().PruneImages(c.Context(), f.target())
			if err != nil {
				return f.explain(c.Context(), s, err)
			}
			s.WarnMissing(silent, "images")
			return printImages(s, list, "no unused images")
		},
	}
	f.bind(s, c, c.Flags())
	return c
}
