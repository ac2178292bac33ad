package deploy

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/config"
	"github.com/bourse-dev/bourse/deploy/run"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// NewRollback returns the command "bourse rollback".
func NewRollback(s *cli.Shell) *cobra.Command {
	var t target
	var f planFlags
	c := &cobra.Command{
		Use:   "rollback [RELEASE]",
		Short: "Return an app to an earlier release",
		Long: `Return an app to an earlier release: to RELEASE (v3, or its id), or to the one before
the current one. If the newest release is incomplete, its changes are undone instead:
machines return to their previous versions, and new ones are destroyed.

A rollback is like any other deploy: a few machines at a time, each ready before the
next. It creates a new release with the configuration and image of the earlier one.`,
		Example: `  bourse rollback
  bourse rollback v3 --plan
  bourse rollback -a shop`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			d := newDeployer(s, &t, &f)
			err := d.rollback(c.Context(), append(args, "")[0])
			if f.only {
				return planExit(err)
			}
			return err
		},
	}
	t.bind(s, c)
	f.bind(c)
	return c
}

func (d *deployer) rollback(ctx context.Context, named string) error {
	app, err := d.target.name()
	if err != nil {
		return err
	}
	have, err := readState(ctx, d.shell, app)
	if err != nil {
		return err
	}
	if err := have.requireApp(); err != nil {
		return err
	}
	if len(have.releases) == 0 {
		return cli.Hint(bourse.Errorf(bourse.CodeFailedPrecondition, "app %s has no release to return to", app), "bourse deploy")
	}
	newest := &have.releases[0]
	if named == "" && unfinished(newest) {
		return d.undo(ctx, have, newest)
	}
	to, err := former(have.releases, named)
	if err != nil || to == nil {
		if err == nil && !d.shell.JSON {
			_, err = fmt.Fprintf(d.shell.Out, "%s  release %s failed, and its changes were undone: there is nothing to roll back\n", app, versionName(newest))
		}
		return err
	}
	w, err := wantOf(to)
	if err != nil {
		return err
	}
	w.App.Name = app
	w.Description = "rollback to " + versionName(to)
	return d.apply(ctx, w, have, "")
}

// former returns the release to roll back to: the one with the given id or version or, if word is
// "", the second most recent complete one. It returns nil if the newest release failed, because its
// changes have already been undone.
func former(list []release.Release, word string) (*release.Release, error) {
	if word != "" {
		for i := range list {
			if strings.EqualFold(word, string(list[i].ID)) || strings.TrimPrefix(strings.ToLower(word), "v") == strconv.FormatInt(list[i].Version, 10) {
				return &list[i], nil
			}
		}
		return nil, cli.Hint(bourse.Errorf(bourse.CodeNotFound, "release %s not found", bourse.Quoted(word)), "bourse releases -a "+string(list[0].App))
	}
	if list[0].Status == release.Failed {
		return nil, nil //nolint:nilnil // see above
	}
	complete := 0
	for i := range list {
		if list[i].Status != release.Complete {
			continue
		}
		if complete++; complete == 2 {
			return &list[i], nil
		}
	}
	return nil, cli.Hint(bourse.Errorf(bourse.CodeFailedPrecondition, "there is no complete release before %s", versionName(&list[0])), "bourse releases -a "+string(list[0].App))
}

// undo undoes an incomplete release.
func (d *deployer) undo(ctx context.Context, have *appState, r *release.Release) error {
	plan := func(have *appState) (deploy.Plan, error) {
		if err := versions(ctx, d.client, have); err != nil {
			return deploy.Plan{}, err
		}
		return deploy.Undo(have.State, r.ID, paceOf(r)), nil
	}
	end := cli.Spin(d.shell.Err, "reading the machines' earlier versions")
	p, err := plan(have)
	end()
	if err != nil {
		return err
	}
	if d.only {
		return d.show(ctx, &p, have)
	}
	// Continue even if the plan has no steps. A request from the killed client may still take
	// effect, so d.execute plans again from the app's latest state.
	if _, err := d.execute(ctx, &p, plan, "rollback of release "+versionName(r)+" of "+string(have.App), run.Options{}); err != nil {
		return err
	}
	return d.finish(context.WithoutCancel(ctx), r, release.Failed)
}

// paceOf returns the pace for undoing a release. It is the release's own pace, except that machines
// have at least the default time to become ready. The rollback could otherwise fail because of a
// time limit that was too short for the new version.
func paceOf(r *release.Release) deploy.Pace {
	out := deploy.Pace{MaxUnavailable: config.DefaultMaxUnavailable, Wait: bourse.Duration(config.DefaultWait), Smoke: true}
	if w, err := wantOf(r); err == nil {
		out.MaxUnavailable, out.Wait = w.App.MaxUnavailable, max(w.App.Wait, out.Wait)
	}
	return out
}
