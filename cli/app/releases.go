package app

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/release"
)

func newReleases(s *cli.Shell) *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:               "releases APP",
		Short:             "List what an app was deployed as, the newest first",
		Example:           "  bourse app releases shop --limit 5",
		Args:              cli.Exactly(1),
		ValidArgsFunction: cli.Complete(s.Apps),
		RunE: func(c *cobra.Command, args []string) error {
			if limit < 0 {
				return cli.FlagError("--limit", bourse.Errorf(bourse.CodeInvalid, "%d: use 0 for all, or more", limit))
			}
			list, err := s.Client().Releases(bourse.AppName(args[0])).List(c.Context(), limit)
			if bourse.CodeOf(err) == bourse.CodeNotFound {
				return cli.Hint(err, "bourse app list")
			}
			if err != nil {
				return err
			}
			t := cli.NewTable("VERSION", "STATUS", "STRATEGY", "IMAGE", "BY", "AGE", "DESCRIPTION").Numbers(0, 5).Narrow(6)
			return cli.PrintList(s, list, "no releases: fly deploy makes one", t, func(r *release.Release) []string {
				return []string{
					fmt.Sprintf("v%d", r.Version), string(r.Status), cmp.Or(r.Strategy, "-"), cmp.Or(r.Image, "-"), cmp.Or(r.User, "-"),
					cli.Age(s.Now().Sub(r.CreatedAt)), r.Description,
				}
			})
		},
	}
	c.Flags().IntVar(&limit, "limit", 0, "show so many at most (default: all that are kept)")
	return c
}
