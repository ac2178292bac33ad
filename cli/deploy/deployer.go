package deploy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/plans"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/run"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
	"github.com/bourse-dev/bourse/workload"
)

// deployer changes one app.
type deployer struct {
	shell  *cli.Shell
	client *machinesapi.Client
	target *target
	planFlags
	keep           bool     // do not undo a plan that fails
	resumeCommands []string // commands that continue an interrupted plan; nil means the default, see resumes
}

func newDeployer(s *cli.Shell, t *target, f *planFlags) *deployer {
	return &deployer{shell: s, client: s.Client(), target: t, planFlags: *f}
}

// resumes returns the commands that continue or undo an interrupted plan.
func (d *deployer) resumes() []string {
	if d.resumeCommands != nil {
		return d.resumeCommands
	}
	which := ""
	if d.target.app != "" {
		which = " -a " + d.target.app
	}
	if d.target.config != "" {
		which += " -c " + d.target.config
	}
	return []string{"bourse deploy --resume" + which, "bourse rollback" + which}
}

func (d *deployer) deploy(ctx context.Context, f *deployFlags) error {
	if f.resume {
		return d.resume(ctx)
	}
	w, err := f.want(ctx, d.shell)
	if err != nil {
		return err
	}
	for _, line := range w.warnings {
		d.shell.Note("warning: " + cli.Clean(line))
	}
	have, err := readState(ctx, d.shell, w.App.Name)
	if err != nil {
		return err
	}
	return d.apply(ctx, w, have, f.org)
}

// apply brings an app to its desired state. If the app does not exist, apply creates it.
func (d *deployer) apply(ctx context.Context, w *desired, have *appState, org string) error {
	o := deploy.Options{}
	if !have.missing && !w.unbuilt {
		var err error
		if o.Digests, err = digests(ctx, d.shell, &w.App); err != nil {
			return err
		}
	}
	p := deploy.Make(w.App, have.State, o)
	if d.only {
		return d.show(ctx, &p, have)
	}
	if err := refused(&p); err != nil {
		return err
	}
	if len(p.Steps) == 0 && !have.hasUnfinished() {
		if err := d.reportNothing(&p); err != nil {
			return err
		}
		return d.printURL(ctx, &w.App)
	}
	if err := d.fits(ctx, &p, have); err != nil {
		return err
	}
	if have.missing {
		if err := d.makeApp(ctx, w.App.Name, org); err != nil {
			return err
		}
	}
	cli.IgnoreSIGPIPE() // complete the release even if nobody reads the output
	r, err := d.record(ctx, w)
	if err != nil {
		return err
	}
	o.Release, o.Version = r.ID, r.Version
	plan := func(have *appState) (deploy.Plan, error) { return deploy.Make(w.App, have.State, o), nil }
	p = deploy.Make(w.App, have.State, o)
	title := "release " + versionName(&r) + " of " + string(p.App)
	if w.Description != "" {
		title += " (" + w.Description + ")"
	}
	if _, err = d.execute(ctx, &p, plan, title, run.Options{Release: r.ID}); err != nil {
		return err
	}
	return d.printURL(ctx, &w.App)
}

// maxLines limits how many of a plan's warnings are printed, and how many reasons for refusing it.
const maxLines = 20

// refused returns an error if the plan cannot be executed.
func refused(p *deploy.Plan) error {
	if len(p.Refused) == 0 {
		return nil
	}
	return bourse.Errorf(bourse.CodeInvalid, "%s", strings.Join(cli.Bounded(p.Refused, maxLines), "\n"))
}

// reportNothing prints the plan's warnings and reports that there is nothing to do.
func (d *deployer) reportNothing(p *deploy.Plan) error {
	d.warn(p)
	if d.shell.JSON {
		return d.shell.PrintLine(plans.Line{Plan: p})
	}
	text := "the app is up to date"
	if left := plans.CountUnreachable(p); left > 0 {
		text = fmt.Sprintf("%d left unchanged, because their workers do not answer; everything else is up to date", left)
	}
	_, err := fmt.Fprintf(d.shell.Out, "%s  nothing to do: %s\n", p.App, text)
	return err
}

func (d *deployer) warn(p *deploy.Plan) {
	for _, line := range cli.Bounded(p.Warnings, maxLines) {
		d.shell.Note("warning: " + cli.Clean(line))
	}
}

// fits requests quotes for the machines that the plan creates. It returns an error if all workers
// would refuse one of the machines.
func (d *deployer) fits(ctx context.Context, p *deploy.Plan, have *appState) error {
	end := cli.Spin(d.shell.Err, "requesting quotes")
	fits := plans.Fits(ctx, d.quotes(have), p)
	end()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return plans.RefusedError(fits)
}

// quotes returns a source of quotes for an app that may not exist yet.
func (d *deployer) quotes(have *appState) plans.Quotes {
	if have.missing {
		return anyApp{d.client}
	}
	return d.client
}

// anyApp requests quotes for the default app, which always exists. It is used if the app to deploy
// does not exist yet.
type anyApp struct{ client *machinesapi.Client }

func (e anyApp) Quote(ctx context.Context, _ bourse.AppName, in machinesapi.CreateMachine) (machinesapi.QuoteReply, error) {
	return e.client.Quote(ctx, cli.DefaultApp, in)
}

func (d *deployer) makeApp(ctx context.Context, name bourse.AppName, org string) error {
	if _, err := d.client.CreateApp(ctx, machinesapi.CreateApp{Name: name, Org: org}); err != nil && bourse.CodeOf(err) != bourse.CodeAlreadyExists {
		return err
	}
	d.shell.Note("app " + cli.Clean(string(name)) + " created")
	return nil
}

// record creates the release for a deploy.
func (d *deployer) record(ctx context.Context, w *desired) (release.Release, error) {
	metadata, err := w.metadata()
	if err != nil {
		return release.Release{}, err
	}
	return d.client.Releases(w.App.Name).Create(ctx, machinesapi.CreateRelease{
		Status: release.Pending, Strategy: string(w.App.Strategy), Description: w.Description, Image: w.Image, Definition: w.Definition, Metadata: metadata,
	})
}

// execute executes a plan and shows its progress. Once it holds the leases of the app's machines, it
// calls plan with the app's current state and executes the resulting plan instead of p.
func (d *deployer) execute(ctx context.Context, p *deploy.Plan, plan func(*appState) (deploy.Plan, error), title string, o run.Options) (run.Result, error) {
	if err := refused(p); err != nil {
		return run.Result{}, err
	}
	d.warn(p)
	if d.shell.JSON {
		_ = d.shell.PrintLine(plans.Line{Plan: p}) // standard output may be closed
	} else {
		d.shell.Note(title + ": " + p.Summary().String())
	}
	o.Owner, o.KeepOnFailure, o.Watch = plans.Owner(d.shell, title), d.keep, d.watch
	o.Replan = func(ctx context.Context) (deploy.Plan, error) {
		have, err := requestState(ctx, d.client, p.App)
		if err != nil {
			return deploy.Plan{}, err
		}
		return plan(have)
	}
	c := plans.Executor{Shell: d.shell, API: run.NewAPI(d.client, p.App), Title: title, Resume: d.resumes(), Options: o}
	return c.Execute(ctx, p)
}

// show prints a plan instead of executing it. It returns errChanges if the plan has steps.
func (d *deployer) show(ctx context.Context, p *deploy.Plan, have *appState) error {
	var fits []plans.Fit
	if len(p.Refused) == 0 {
		end := cli.Spin(d.shell.Err, "requesting quotes")
		fits = plans.Fits(ctx, d.quotes(have), p)
		end()
	}
	if err := d.print(p, fits, have); err != nil {
		return err
	}
	if err := refused(p); err != nil {
		return cli.AfterResult(bourse.Errorf(bourse.CodeInvalid, "the plan cannot be carried out: %s", cli.Count(len(p.Refused), "reason")))
	}
	if err := plans.NoRoomError(fits); err != nil {
		return cli.AfterResult(err)
	}
	if len(p.Steps) > 0 {
		return errChanges
	}
	return nil
}

func (d *deployer) print(p *deploy.Plan, fits []plans.Fit, have *appState) error {
	if d.shell.JSON {
		return d.shell.PrintJSON(plans.Line{Plan: p, Fits: fits})
	}
	if have.missing {
		d.shell.Note("app " + cli.Clean(string(p.App)) + " does not exist: a deploy creates it")
	}
	return plans.Print(d.shell, p, fits)
}

// Time limit and polling interval for waiting until a proxy serves a new app.
const (
	urlWithin = 3 * time.Second
	urlStep   = 200 * time.Millisecond
)

// printURL prints the URL where proxies serve an app. It prints nothing if the app's machines have
// no ports, if the proxies cannot be listed, or if none serves the app in time. It returns an error
// only if a write fails, because the deploy has already succeeded.
func (d *deployer) printURL(ctx context.Context, app *deploy.App) error {
	if d.shell.JSON || !slices.ContainsFunc(app.Groups, hasPorts) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, urlWithin)
	defer cancel()
	for {
		list, err := machinesapi.Proxies{Client: d.client}.Of(ctx, app.Name)
		if err != nil || len(list) == 0 {
			return nil
		}
		if urls := cli.URLs(list); len(urls) > 0 {
			_, err := fmt.Fprintf(d.shell.Out, "%s  served at %s\n", app.Name, cli.Clean(urls[0]))
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(urlStep):
		}
	}
}

func hasPorts(g deploy.Group) bool {
	return slices.ContainsFunc(workload.Services(&g.Config), func(s workload.Service) bool { return len(s.Ports) > 0 })
}
