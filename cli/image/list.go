package image

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newList(s *cli.Shell) *cobra.Command {
	var f targetFlags
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
			return printList(s, list, "no worker has an image; fetch one: bourse image pull IMAGE")
		},
	}
	f.bind(s, c, c.Flags())
	return c
}

func printList(s *cli.Shell, list []machinesapi.WorkerImage, none string) error {
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
