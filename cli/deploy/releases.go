package deploy

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// NewReleases returns the command "bourse releases".
func NewReleases(s *cli.Shell) *cobra.Command {
	var t target
	var limit int
	c := &cobra.Command{
		Use:     "releases",
		Short:   "List the releases of an app, newest first",
		Example: "  bourse releases --limit 5",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			app, err := t.name()
			if err != nil {
				return err
			}
			return listReleases(c.Context(), s, app, limit)
		},
	}
	t.bind(s, c)
	limitFlag(c, &limit)
	return c
}

// NewAppReleases returns the command "bourse app releases".
func NewAppReleases(s *cli.Shell) *cobra.Command {
	var app string
	var limit int
	c := &cobra.Command{
		Use:               "releases [APP]",
		Short:             "List the releases of an app, newest first",
		Example:           "  bourse app releases shop --limit 5",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cli.Complete(s.Apps),
		RunE: func(c *cobra.Command, _ []string) error {
			return listReleases(c.Context(), s, bourse.AppName(app), limit)
		},
	}
	s.BindApp(c, &app).OrArgument()
	limitFlag(c, &limit)
	return c
}

func limitFlag(c *cobra.Command, limit *int) {
	c.Flags().IntVar(limit, "limit", 0, "maximum `number` of releases to show (default: all)")
}

func listReleases(ctx context.Context, s *cli.Shell, app bourse.AppName, limit int) error {
	if limit < 0 {
		return cli.FlagError("--limit", bourse.Errorf(bourse.CodeInvalid, "%d: use 0 for all, or more", limit))
	}
	end := cli.Spin(s.Err, "reading releases")
	list, err := s.Client().Releases(app).List(ctx, limit)
	end()
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return cli.Hint(err, "bourse app list")
	}
	if err != nil {
		return err
	}
	t := cli.NewTable("VERSION", "STATUS", "STRATEGY", "IMAGE", "BY", "AGE", "DESCRIPTION").Numbers(0, 5).Narrow(3, 6).KeepEnd(3).Drop(2)
	return cli.PrintList(s, list, "no releases; to create one: bourse deploy", t, func(r *release.Release) []string {
		return []string{
			versionName(r), string(r.Status), cmp.Or(r.Strategy, "-"), cmp.Or(r.Image, "-"), cmp.Or(r.User, "-"),
			cli.Age(s.Now().Sub(r.CreatedAt)), r.Description,
		}
	})
}
