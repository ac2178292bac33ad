package deploy

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/place"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/config"
	"github.com/bourse-dev/bourse/release"
)

// want is what an app is to be, and what its release keeps of that.
type want struct {
	App         deploy.App
	Definition  json.RawMessage // the configuration, as fly.json has it
	Image       string
	Description string
	warnings    []string
	unbuilt     bool // the image has to be built: there is none of its name, or another one
}

// load reads the configuration.
func (t *target) load() (*config.Config, error) {
	file, err := (&configFile{t.config}).find()
	if err != nil {
		return nil, err
	}
	return config.Load(file)
}

// want reads the configuration and lays the flags over it.
func (f *deployFlags) want(ctx context.Context, s *cli.Shell) (*want, error) {
	c, err := f.load()
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(filepath.Dir(c.File())) // no symbolic link leads out of it
	if err != nil {
		return nil, err
	}
	defer root.Close()
	options, err := f.options(root.FS())
	if err != nil {
		return nil, err
	}
	var unbuilt bool
	if options.Image, unbuilt, err = f.built(ctx, s, c, options.Image); err != nil {
		return nil, err
	}
	app, warnings, err := c.App(options)
	if err != nil {
		return nil, err
	}
	definition, err := c.JSON()
	if err != nil {
		return nil, err
	}
	w := &want{App: app, Definition: definition, Image: imageOf(&app), Description: f.message, unbuilt: unbuilt}
	for _, warning := range warnings {
		w.warnings = append(w.warnings, warning.String())
	}
	w.localPrograms()
	return w, nil
}

// options are the flags as package config knows them; files are those of the
// configuration's directory.
func (f *deployFlags) options(files fs.FS) (config.Options, error) {
	o := config.Options{
		Image: f.image, App: bourse.AppName(f.app), Primary: bourse.Region(f.region), NoSpares: !f.ha,
		Strategy: deploy.Strategy(f.strategy), MaxUnavailable: f.maxUnavailable, Wait: f.wait, CommandTimeout: f.commandTimeout,
		NoCommand: f.noCommand, NoSmoke: !f.smoke, Reserve: f.reserve, Files: files,
	}
	var err error
	if o.Env, err = cli.ParsePairs(f.env); err != nil {
		return o, cli.FlagError("--env", err)
	}
	if f.sized {
		if o.Guest, err = f.size.Guest(); err != nil {
			return o, err
		}
	}
	if f.wait < 0 || f.commandTimeout < 0 {
		return o, bourse.Errorf(bourse.CodeInvalid, "--wait-timeout and --release-command-timeout: use more than 0")
	}
	return o, nil
}

// localPrograms looks up programs of image host that are named relative to here, as machine
// run does.
func (w *want) localPrograms() {
	for i := range w.App.Groups {
		if c := &w.App.Groups[i].Config; c.ImageKind() == bourse.HostImage {
			place.LocalProgram(&c.Init)
		}
	}
	if command := w.App.Command; command != nil && command.Config.ImageKind() == bourse.HostImage {
		place.LocalProgram(&command.Config.Init)
	}
}

// imageOf is the image that a release is listed with: that of the first group.
func imageOf(app *deploy.App) string {
	for i := range app.Groups {
		return app.Groups[i].Config.Image
	}
	return ""
}

// kept is what a release's metadata has of ours: what the app was to be, with nothing left to
// look up.
type kept struct {
	Want *deploy.App `json:"bourse_want,omitempty"`
}

// maxKept bounds what a release's metadata has of ours, in bytes; the API takes 64 KiB, and the
// executor writes its own beside it.
const maxKept = 56 << 10

// metadata is what a release keeps of what is wanted; empty where that is too large:
// then its definition has to do.
func (w *want) metadata() (json.RawMessage, error) {
	raw, err := json.Marshal(kept{&w.App})
	if err != nil || len(raw) > maxKept {
		return json.RawMessage("{}"), err
	}
	return raw, nil
}

// wantOf returns what an app was to be with a release: as we have kept it, or as the
// definition says that another client has.
func wantOf(r *release.Release) (*want, error) {
	w := &want{Definition: r.Definition, Image: r.Image}
	var k kept
	if err := json.Unmarshal(r.Metadata, &k); err == nil && k.Want != nil {
		w.App = *k.Want
		return w, nil
	}
	if len(r.Definition) == 0 {
		return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "release %s has no definition: the client that made it kept none", vName(r))
	}
	c, err := config.Parse("release "+vName(r)+".json", r.Definition)
	if err != nil {
		return nil, err
	}
	app, warnings, err := c.App(config.Options{Image: r.Image, App: r.App, Strategy: deploy.Strategy(r.Strategy)})
	if err != nil {
		return nil, err
	}
	for _, warning := range warnings {
		w.warnings = append(w.warnings, warning.String())
	}
	w.App = app
	return w, nil
}
