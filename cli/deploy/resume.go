package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/run"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// resume continues the newest release of the app.
func (d *deployer) resume(ctx context.Context) error {
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
	if len(have.releases) == 0 || !unfinished(&have.releases[0]) {
		text := "app " + string(app) + " has no release"
		if len(have.releases) > 0 {
			text = fmt.Sprintf("release %s of %s is %s", versionName(&have.releases[0]), app, have.releases[0].Status)
		}
		return cli.Hint(bourse.Errorf(bourse.CodeFailedPrecondition, "%s: there is nothing to resume", text), "bourse deploy", "bourse releases -a "+string(app))
	}
	r := &have.releases[0]
	w, err := wantOf(r)
	if err != nil {
		return err
	}
	o := deploy.Options{Release: r.ID, Version: r.Version}
	if o.Digests, err = digests(ctx, d.shell, &w.App); err != nil {
		return err
	}
	plan := func(have *appState) (deploy.Plan, error) { return deploy.Make(w.App, have.State, o), nil }
	p := deploy.Make(w.App, have.State, o)
	if d.only {
		return d.show(ctx, &p, have)
	}
	// Continue even if the plan has no steps. A request from the killed client may still take
	// effect, so d.execute plans again from the app's latest state.
	result, err := d.execute(ctx, &p, plan, "release "+versionName(r)+" of "+string(app), run.Options{Release: r.ID, Resumed: true})
	begun := slices.ContainsFunc(result.Steps, func(o run.Outcome) bool { return o.State != "" })
	if stays := d.keep || ctx.Err() != nil; err == nil || stays || !begun || errors.Is(err, run.ErrOvertaken) {
		return err
	}
	return errors.Join(err, d.undoWhole(ctx, app, r))
}

// undoWhole undoes the remaining changes of a release whose resumed run failed. That run has
// undone only its own changes, not those made before the interruption.
func (d *deployer) undoWhole(ctx context.Context, app bourse.AppName, r *release.Release) error {
	d.shell.Note("undoing the earlier changes of release " + versionName(r) + ", too")
	have, err := readState(ctx, d.shell, app)
	if err != nil {
		return err
	}
	return d.undo(ctx, have, r)
}

// finish records the final status of a release.
func (d *deployer) finish(ctx context.Context, r *release.Release, status release.Status) error {
	_, err := d.client.Releases(r.App).Change(ctx, r.ID, machinesapi.ChangeRelease{Status: status})
	return err
}

// unfinished reports whether a release has neither completed nor failed.
func unfinished(r *release.Release) bool {
	return r.Status == release.Pending || r.Status == release.Running || r.Status == release.Interrupted
}
