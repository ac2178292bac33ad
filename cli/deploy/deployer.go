package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/plans"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/run"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/release"
)

// deployer changes one app.
type deployer struct {
	shell  *cli.Shell
	client *machinesapi.Client
	target *target
	planFlags
	keep bool // what was changed stays when a machine fails
}

func newDeployer(s *cli.Shell, t *target, f *planFlags) *deployer {
	return &deployer{shell: s, client: s.Client(), target: t, planFlags: *f}
}

// goOn are the commands that go on with what a broken-off deploy has left.
func (d *deployer) goOn() []string {
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
	if d.out != "" && !d.only {
		return bourse.Errorf(bourse.CodeInvalid, "--out saves what --plan shows: use both")
	}
	switch {
	case d.apply != "":
		return d.applySaved(ctx)
	case f.resume:
		return d.resume(ctx)
	}
	w, err := f.want()
	if err != nil {
		return err
	}
	for _, line := range w.warnings {
		d.shell.Note("warning: " + cli.Clean(line))
	}
	have, err := look(ctx, d.client, w.App.Name)
	if err != nil {
		return err
	}
	return d.make(ctx, w, have, f.org)
}

// make makes an app that is there, or is not, what is wanted.
func (d *deployer) make(ctx context.Context, w *want, have *there, org string) error {
	o := deploy.Options{}
	if !have.missing {
		var err error
		if o.Digests, err = digests(ctx, d.client, &w.App); err != nil {
			return err
		}
	}
	p := deploy.Make(w.App, have.State, o)
	if d.only {
		return d.show(ctx, &saved{Plan: p, Want: w.App, Definition: w.Definition, Image: w.Image, Description: w.Description}, have)
	}
	if err := refused(&p); err != nil {
		return err
	}
	if len(p.Steps) == 0 {
		return d.nothing(&p)
	}
	if err := d.fits(ctx, &p, have); err != nil {
		return err
	}
	if have.missing {
		if err := d.makeApp(ctx, w.App.Name, org); err != nil {
			return err
		}
	}
	r, err := d.record(ctx, w)
	if err != nil {
		return err
	}
	o.Release, o.Version = r.ID, r.Version
	p = deploy.Make(w.App, have.State, o)
	title := "release " + vName(&r) + " of " + string(p.App)
	if w.Description != "" {
		title += " (" + w.Description + ")"
	}
	return d.carry(ctx, &p, title, r.ID)
}

// refused returns the error of a plan that cannot be carried out.
func refused(p *deploy.Plan) error {
	if len(p.Refused) == 0 {
		return nil
	}
	return bourse.Errorf(bourse.CodeInvalid, "%s", strings.Join(p.Refused, "\n"))
}

// nothing is the end of a deploy of what is so already.
func (d *deployer) nothing(p *deploy.Plan) error {
	d.warn(p)
	if d.shell.JSON {
		return d.shell.PrintLine(plans.Line{Plan: p})
	}
	_, err := fmt.Fprintf(d.shell.Out, "%s  nothing to do: it is as it is wanted\n", p.App)
	return err
}

func (d *deployer) warn(p *deploy.Plan) {
	for _, line := range p.Warnings {
		d.shell.Note("warning: " + cli.Clean(line))
	}
}

// fits returns an error when no worker would take a machine that the plan makes: nothing has
// been touched then.
func (d *deployer) fits(ctx context.Context, p *deploy.Plan, have *there) error {
	end := cli.Spin(d.shell.Err, "asking for quotes")
	fits := plans.Fits(ctx, d.quotes(have), p)
	end()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return plans.ShortError(fits)
}

// quotes asks for quotes for machines of an app, also of one that there is not yet.
func (d *deployer) quotes(have *there) plans.Quotes {
	if have.missing {
		return elsewhere{d.client}
	}
	return d.client
}

// elsewhere asks for quotes in the name of the app that there always is.
type elsewhere struct{ client *machinesapi.Client }

func (e elsewhere) Quote(ctx context.Context, _ bourse.AppName, in machinesapi.CreateMachine) (machinesapi.Quoted, error) {
	return e.client.Quote(ctx, cli.DefaultApp, in)
}

func (d *deployer) makeApp(ctx context.Context, name bourse.AppName, org string) error {
	if _, err := d.client.CreateApp(ctx, machinesapi.CreateApp{Name: name, Org: org}); err != nil && bourse.CodeOf(err) != bourse.CodeAlreadyExists {
		return err
	}
	d.shell.Note("app " + cli.Clean(string(name)) + " is made: there was none")
	return nil
}

// record records that a deploy begins.
func (d *deployer) record(ctx context.Context, w *want) (release.Release, error) {
	metadata, err := w.metadata()
	if err != nil {
		return release.Release{}, err
	}
	return d.client.Releases(w.App.Name).Create(ctx, machinesapi.CreateRelease{
		Status: release.Pending, Strategy: string(w.App.Strategy), Description: w.Description, Image: w.Image, Definition: w.Definition, Metadata: metadata,
	})
}

// carry carries out a plan before a person's eyes.
func (d *deployer) carry(ctx context.Context, p *deploy.Plan, title string, r release.ID) error {
	if err := refused(p); err != nil {
		return err
	}
	d.warn(p)
	if d.shell.JSON {
		if err := d.shell.PrintLine(plans.Line{Plan: p}); err != nil {
			return err
		}
	} else {
		d.shell.Note(title + ": " + p.Summary().String())
	}
	c := plans.Carrier{
		Shell: d.shell, API: run.Over(d.client, p.App), Title: title, GoOn: d.goOn(),
		Options: run.Options{Owner: plans.Owner(d.shell, title), Release: r, KeepOnFailure: d.keep},
	}
	_, err := c.Carry(ctx, p)
	return err
}

// show prints a plan and touches nothing. Its error is errChanges when there is something
// to do.
func (d *deployer) show(ctx context.Context, s *saved, have *there) error {
	p := &s.Plan
	var fits []plans.Fit
	if len(p.Refused) == 0 {
		fits = plans.Fits(ctx, d.quotes(have), p)
	}
	if d.out != "" {
		if err := s.save(d.out); err != nil {
			return err
		}
	}
	if err := d.print(p, fits, have); err != nil {
		return err
	}
	if err := refused(p); err != nil {
		return cli.Beside(bourse.Errorf(bourse.CodeInvalid, "the plan cannot be carried out: %s", cli.Count(len(p.Refused), "reason")))
	}
	if err := plans.ShortError(fits); err != nil {
		return cli.Beside(err)
	}
	if len(p.Steps) > 0 {
		return errChanges
	}
	return nil
}

func (d *deployer) print(p *deploy.Plan, fits []plans.Fit, have *there) error {
	if d.shell.JSON {
		return d.shell.PrintJSON(plans.Line{Plan: p, Fits: fits})
	}
	if have.missing {
		d.shell.Note("app " + cli.Clean(string(p.App)) + " does not exist: a deploy makes it")
	}
	return plans.Print(d.shell, p, fits)
}

// saved is a plan in a file, with what it needs to be made again.
type saved struct {
	Plan        deploy.Plan     `json:"plan"`
	Want        deploy.App      `json:"want"`
	Definition  json.RawMessage `json:"definition,omitempty"`
	Image       string          `json:"image,omitempty"`
	Description string          `json:"description,omitempty"`
}

// save writes the file, which only its owner may read: it has the app's environment.
func (s *saved) save(file string) error {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(raw, '\n'), 0o600)
}

// maxSaved bounds a file with a plan, in bytes.
const maxSaved = 256 << 20

// readSaved reads what save has written.
func readSaved(file string) (*saved, error) {
	raw, err := readFile(file)
	if err != nil {
		return nil, err
	}
	return parseSaved(file, raw)
}

func parseSaved(file string, raw []byte) (*saved, error) {
	var s saved
	if err := json.Unmarshal(raw, &s); err != nil || len(raw) > maxSaved {
		return nil, bourse.Errorf(bourse.CodeInvalid, "%s has no plan that bourse deploy --plan --out has saved: %w", file, err)
	}
	if err := s.Plan.App.Validate(); err != nil || s.Plan.App != s.Want.Name || s.Plan.Basis == "" {
		return nil, bourse.Errorf(bourse.CodeInvalid, "%s has no plan that bourse deploy --plan --out has saved", file)
	}
	return &s, nil
}

// applySaved carries out a saved plan, if all is as it was when it was made.
func (d *deployer) applySaved(ctx context.Context) error {
	s, err := readSaved(d.apply)
	if err != nil {
		return err
	}
	if named := d.target.app; named != "" && named != string(s.Plan.App) {
		return bourse.Errorf(bourse.CodeInvalid, "the plan is of app %s, not of %s", s.Plan.App, named)
	}
	w := &want{App: s.Want, Definition: s.Definition, Image: s.Image, Description: s.Description}
	have, err := look(ctx, d.client, w.App.Name)
	if err != nil {
		return err
	}
	if changes := changed(s.Plan.Seen, have); len(changes) > 0 {
		return unfit(d.apply, changes)
	}
	var o deploy.Options
	if !have.missing {
		if o.Digests, err = digests(ctx, d.client, &w.App); err != nil {
			return err
		}
	}
	if p := deploy.Make(w.App, have.State, o); p.Basis != s.Plan.Basis {
		return unfit(d.apply, []string{"an image is another one under the same name, or the plan is of another version of bourse"})
	}
	return d.make(ctx, w, have, "")
}

func unfit(file string, changes []string) error {
	err := bourse.Errorf(bourse.CodeConflict, "the plan in %s does not fit any more:\n%s", file, strings.Join(changes, "\n"))
	return cli.Hint(err, "a new plan: bourse deploy --plan --out "+file)
}

// changed says what is not as it was when a plan was made.
func changed(seen map[bourse.MachineID]deploy.Seen, have *there) []string {
	now := deploy.Make(deploy.App{Name: have.App}, have.State, deploy.Options{}).Seen
	var out []string
	for id, was := range seen {
		is, ok := now[id]
		name := string(id)
		if was.Name != "" {
			name += " (" + was.Name + ")"
		}
		switch {
		case !ok:
			out = append(out, "machine "+name+" is gone")
		case is.Instance != was.Instance:
			out = append(out, fmt.Sprintf("machine %s has version %s, and had %s", name, is.Instance, was.Instance))
		case is != was:
			out = append(out, "machine "+name+" is in another state: "+different(was, is))
		}
	}
	for id, is := range now {
		if _, ok := seen[id]; !ok {
			out = append(out, fmt.Sprintf("machine %s in %s is new", id, is.Region))
		}
	}
	slices.Sort(out)
	return out
}

func different(was, is deploy.Seen) string {
	var out []string
	for _, x := range []struct {
		name    string
		was, is bool
	}{{"stopped", was.Down, is.Down}, {"cordoned", was.Cordoned, is.Cordoned}, {"out of reach", was.Lost, is.Lost}} {
		switch {
		case x.is && !x.was:
			out = append(out, "it is "+x.name)
		case x.was && !x.is:
			out = append(out, "it is not "+x.name+" any more")
		}
	}
	if was.Worker != is.Worker {
		out = append(out, fmt.Sprintf("on worker %s, not %s", is.Worker, was.Worker))
	}
	if len(out) == 0 {
		return "its name, group or region"
	}
	return strings.Join(out, ", ")
}

// resume goes on with the newest release.
func (d *deployer) resume(ctx context.Context) error {
	app, err := d.target.name()
	if err != nil {
		return err
	}
	have, err := look(ctx, d.client, app)
	if err != nil {
		return err
	}
	if err := have.mustBe(); err != nil {
		return err
	}
	if len(have.releases) == 0 || !unfinished(&have.releases[0]) {
		text := "app " + string(app) + " has no release"
		if len(have.releases) > 0 {
			text = fmt.Sprintf("release %s of %s is %s", vName(&have.releases[0]), app, have.releases[0].Status)
		}
		return cli.Hint(bourse.Errorf(bourse.CodeFailedPrecondition, "%s: there is nothing to go on with", text), "bourse deploy", "bourse releases -a "+string(app))
	}
	r := &have.releases[0]
	w, err := wantOf(r)
	if err != nil {
		return err
	}
	o := deploy.Options{Release: r.ID, Version: r.Version}
	if o.Digests, err = digests(ctx, d.client, &w.App); err != nil {
		return err
	}
	p := deploy.Make(w.App, have.State, o)
	if d.only {
		return d.show(ctx, &saved{Plan: p, Want: w.App, Definition: w.Definition, Image: w.Image}, have)
	}
	if len(p.Steps) == 0 && len(p.Refused) == 0 {
		if err := d.ended(ctx, r, release.Complete); err != nil {
			return err
		}
		return d.nothing(&p)
	}
	return d.carry(ctx, &p, "release "+vName(r)+" of "+string(app), r.ID)
}

// ended records how a release has ended.
func (d *deployer) ended(ctx context.Context, r *release.Release, status release.Status) error {
	_, err := d.client.Releases(r.App).Change(ctx, r.ID, machinesapi.ChangeRelease{Status: status})
	return err
}

// unfinished reports whether a release was begun and has not ended, well or badly.
func unfinished(r *release.Release) bool {
	return r.Status == release.Pending || r.Status == release.Running || r.Status == release.Interrupted
}
