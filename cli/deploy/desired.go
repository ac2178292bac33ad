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
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// desired is the desired state of an app, with the data to record in its release.
type desired struct {
	App         deploy.App
	Definition  json.RawMessage // the configuration as JSON, in the format of fly.json
	Image       string
	Description string
	warnings    []string
	unbuilt     bool // the image would have to be built first, so its digest is unknown
}

// load reads the configuration.
func (t *target) load() (*config.Config, error) {
	file, err := (&configFile{t.config}).find()
	if err != nil {
		return nil, err
	}
	return config.Load(file)
}

// want returns the desired state of the app, from the configuration and the flags that
// override it. It builds and pushes the image if necessary.
func (f *deployFlags) want(ctx context.Context, s *cli.Shell) (*desired, error) {
	c, err := f.load()
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(filepath.Dir(c.File())) // a root prevents symbolic links from leading out of the directory
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
	w := &desired{App: app, Definition: definition, Image: imageOf(&app), Description: f.message, unbuilt: unbuilt}
	for _, warning := range warnings {
		w.warnings = append(w.warnings, warning.String())
	}
	w.localPrograms()
	return w, nil
}

// options converts the flags to options for package config. files is the directory of the
// configuration file.
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

// localPrograms makes relative paths of programs absolute, as "bourse machine run" does.
// It applies only to machines with the image host.
func (w *desired) localPrograms() {
	for i := range w.App.Groups {
		if c := &w.App.Groups[i].Config; c.ImageKind() == bourse.HostImage {
			place.LocalProgram(&c.Init)
		}
	}
	if command := w.App.Command; command != nil && command.Config.ImageKind() == bourse.HostImage {
		place.LocalProgram(&command.Config.Init)
	}
}

// imageOf returns the image to show for a release: the first group's image, or "" if there are no groups.
func imageOf(app *deploy.App) string {
	for i := range app.Groups {
		return app.Groups[i].Config.Image
	}
	return ""
}

// storedWant is the part of a release's metadata that a deploy stores. It contains the app's
// complete desired state.
type storedWant struct {
	Want *deploy.App `json:"bourse_want,omitempty"`
}

// maxStoredWant limits the size of a storedWant, in bytes. The API accepts only 64 KiB of metadata, and package
// deploy/run adds a note about the run's outcome to the metadata.
const maxStoredWant = 56 << 10

// metadata returns the metadata to store with a release. If the desired state is too large,
// it returns an empty object, and wantOf uses the release's definition instead.
func (w *desired) metadata() (json.RawMessage, error) {
	raw, err := json.Marshal(storedWant{&w.App})
	if err != nil || len(raw) > maxStoredWant {
		return json.RawMessage("{}"), err
	}
	return raw, nil
}

// wantOf returns the desired state of a recorded release. The state comes from the release's metadata or, if another
// client created the release, from its definition.
func wantOf(r *release.Release) (*desired, error) {
	w := &desired{Definition: r.Definition, Image: r.Image}
	var k storedWant
	if err := json.Unmarshal(r.Metadata, &k); err == nil && k.Want != nil {
		w.App = *k.Want
		return w, nil
	}
	if len(r.Definition) == 0 {
		return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "release %s has no definition: the client that created it did not store one", versionName(r))
	}
	c, err := config.Parse("release "+versionName(r)+".json", r.Definition)
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
