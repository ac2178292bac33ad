package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func (s *shell) image() *cobra.Command {
	c := noun("image", "See, fetch and remove images on workers", s.imageList(), s.imagePull(), s.imagePrune())
	c.Aliases = []string{"images"}
	return c
}

// targetFlags say which workers are meant.
type targetFlags struct{ region, worker string }

func (f *targetFlags) bind(s *shell, c *cobra.Command, flags *pflag.FlagSet) {
	flags.StringVarP(&f.region, "region", "r", "", "only the workers of this `region`")
	flags.StringVarP(&f.worker, "worker", "w", "", "only this `worker`")
	s.completeRegions(c)
}

func (f *targetFlags) target() machinesapi.ImageTarget {
	return machinesapi.ImageTarget{Region: bourse.Region(f.region), Worker: bourse.WorkerID(f.worker)}
}

func (s *shell) imageList() *cobra.Command {
	var f targetFlags
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the images that workers have",
		Args:    none,
		RunE: func(c *cobra.Command, _ []string) error {
			list, silent, err := s.client().Images(c.Context(), f.target())
			if err != nil {
				return err
			}
			s.warnAbout(silent, "images")
			return s.printImages(list, "no worker has an image; fetch one: bourse image pull IMAGE")
		},
	}
	f.bind(s, c, c.Flags())
	return c
}

func (s *shell) printImages(list []machinesapi.WorkerImage, none string) error {
	if s.json {
		return s.printJSON(list)
	}
	if len(list) == 0 {
		s.say(none)
		return nil
	}
	t := newTable("IMAGE", "DIGEST", "WORKER", "PULLED", "ON DISK", "USED", "STATE").numbers(3, 4).narrow(0, 1)
	for i := range list {
		x := &list[i]
		name := x.Ref
		name.Digest = ""
		used := "-"
		if !x.UsedAt.IsZero() {
			used = age(s.Now().Sub(x.UsedAt)) + " ago"
		}
		t.row(shortImage(name), shortDigest(x.Ref.Digest), string(x.Worker), bytesText(x.Bytes), bytesText(x.Disk), used, imageState(&x.Image))
	}
	return t.write(s.Out, s.Out.Width)
}

// shortImage leaves out what people leave out, too.
func shortImage(r bourse.ImageRef) string {
	s := r.String()
	for _, usual := range []string{bourse.DefaultRegistry + "/library/", bourse.DefaultRegistry + "/"} {
		if rest, ok := strings.CutPrefix(s, usual); ok {
			return rest
		}
	}
	return s
}

// shortDigest shows as much of a digest as people compare.
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

func (s *shell) imagePull() *cobra.Command {
	var f targetFlags
	c := &cobra.Command{
		Use:   "pull IMAGE",
		Short: "Have workers fetch an image before a machine needs it",
		Example: `  bourse image pull nginx --region gru
  bourse image pull registry.example.com/app@sha256:… --worker gru-1`,
		Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error { return s.pull(c.Context(), args[0], f.target()) },
	}
	f.bind(s, c, c.Flags())
	return c
}

// pull shows a bar for each worker, and fails if any of them did.
func (s *shell) pull(ctx context.Context, image string, target machinesapi.ImageTarget) error {
	bars := progress{to: s.Err}
	var problems []error
	asked := 0
	err := s.client().PullImage(ctx, machinesapi.PullImage{Image: image, ImageTarget: target}, func(l machinesapi.PullLine) error {
		if s.json {
			return s.printLine(l)
		}
		name := string(l.Worker)
		switch err := l.Err(); {
		case err != nil:
			problems = append(problems, bourse.Errorf(bourse.CodeOf(err), "worker %s: %w", l.Worker, err))
			if s.Err.TTY { // a bar that ends; elsewhere the error is told once, at the end
				bars.set(bar{name: name, status: "failed", over: true})
			}
			asked++
		case l.Done && l.Image != nil:
			bars.set(pullBar(name, &bourse.Image{Bytes: l.Image.Bytes}))
			asked++
		case l.Image != nil:
			bars.set(pullBar(name, l.Image))
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case len(problems) > 0:
		return errors.Join(problems...)
	case asked == 0 && !s.json:
		return bourse.Errorf(bourse.CodeNotFound, "no worker there runs images")
	}
	return nil
}

func (s *shell) imagePrune() *cobra.Command {
	var f targetFlags
	c := &cobra.Command{
		Use:   "prune",
		Short: "Remove the images that no machine uses",
		Args:  none,
		RunE: func(c *cobra.Command, _ []string) error {
			list, silent, err := s.client().PruneImages(c.Context(), f.target())
			if err != nil {
				return err
			}
			s.warnAbout(silent, "images")
			return s.printImages(list, "every image is in use, or there is none")
		},
	}
	f.bind(s, c, c.Flags())
	return c
}
