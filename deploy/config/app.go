package config

import (
	"cmp"
	"io/fs"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/workload"
)

// Options contains settings from the command line that override a configuration. The zero
// value leaves the configuration unchanged.
type Options struct {
	Image      string            // overrides build.image
	BuildLater bool              // allow a missing image, because it will be built later
	App        bourse.AppName    // overrides app
	Primary    bourse.Region     // overrides primary_region
	Env        map[string]string // variables that are added to env and override it
	Guest      *bourse.Guest     // size of every group's machines; overrides vm
	NoSpares   bool              // do not create spares unless the file requires them

	Strategy       deploy.Strategy // overrides deploy.strategy
	MaxUnavailable float64         // overrides deploy.max_unavailable; 0 means not set
	Wait           time.Duration   // overrides deploy.wait_timeout
	CommandTimeout time.Duration   // overrides deploy.release_command_timeout
	NoCommand      bool            // do not run the release command
	NoSmoke        bool            // do not fail if a machine exits soon after it starts
	Reserve        bool            // reserve capacity even if deploy.reserve is not set

	// Files is the configuration's directory, which contains the files that local_path and machine_config refer to.
	// If Files is nil, a file name in one of these fields is an error.
	Files fs.FS
}

// Default settings for deploys.
const (
	DefaultStrategy       = deploy.Rolling
	DefaultMaxUnavailable = 0.33
	DefaultWait           = 5 * time.Minute
	DefaultCommandTimeout = 5 * time.Minute
	DefaultGroup          = "app" // process group if the configuration defines none
)

// App returns the desired state of the app and all warnings, including those of [Config.Warnings]. It reads files only
// from options.Files. Errors: invalid, which wraps the [Problems].
func (c *Config) App(options Options) (deploy.App, []Warning, error) {
	m := configMaker{checker: checker{Config: c}, Options: options, warnings: c.Warnings()}
	app := deploy.App{
		Name:    cmp.Or(options.App, bourse.AppName(c.AppName)),
		Primary: cmp.Or(options.Primary, bourse.Region(c.PrimaryRegion)),
	}
	switch {
	case app.Name == "":
		m.bad("app", "the app has no name: write app = \"…\", or use --app")
	case options.App != "":
		m.valid("", options.App.Validate())
	}
	if app.Primary != "" {
		m.valid("primary_region", app.Primary.Validate())
	}
	m.primary, m.base = app.Primary, m.machineConfig()
	m.image = cmp.Or(options.Image, m.buildImage(), m.base.Image)
	unnamed := m.image == ""
	if unnamed {
		if !m.BuildLater {
			m.bad("build", "no image is set: write image = \"…\" under [build], or use --image")
		}
		m.image = "later" // placeholder until all fields have been checked
	}
	if m.image == bourse.ImageHost {
		m.checkHost()
	}
	m.deploy(&app)
	for _, name := range c.GroupNames() {
		app.Groups = append(app.Groups, m.group(name))
	}
	app.Command = m.command()
	m.checkStrategy(&app)
	if unnamed {
		for i := range app.Groups {
			app.Groups[i].Config.Image = ""
		}
		if app.Command != nil {
			app.Command.Config.Image = ""
		}
	}
	slices.SortStableFunc(m.warnings, func(a, b Warning) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if err := m.problems.err(); err != nil {
		return deploy.App{}, m.warnings, err
	}
	return app, m.warnings, nil
}

// configMaker converts a configuration and options to a [deploy.App].
type configMaker struct {
	checker
	Options
	image    string
	primary  bourse.Region
	base     bourse.Config // config from machine_config; other sections override it
	warnings []Warning
}

func (m *configMaker) buildImage() string {
	if m.Build == nil {
		return ""
	}
	return m.Build.Image
}

// checkHost adds a problem for each group without a command, because the image "host" has no default command.
func (m *configMaker) checkHost() {
	if c := m.baseConfig(); len(c.Init.Command()) > 0 || len(c.Processes) > 0 {
		return
	}
	for _, name := range m.GroupNames() {
		if m.Processes[name] == "" {
			m.bad("processes."+name, "image host requires a command: write %s = \"…\" under [processes]", name)
		}
	}
}

// deploy fills in the app's deploy strategy and the strategy's settings.
func (m *configMaker) deploy(app *deploy.App) {
	d := m.Deploy
	if d == nil {
		d = &Deploy{}
	}
	app.Strategy = cmp.Or(m.Strategy, deploy.Strategy(d.Strategy), DefaultStrategy)
	if !slices.Contains([]deploy.Strategy{deploy.Rolling, deploy.Immediate, deploy.Canary, deploy.BlueGreen}, app.Strategy) {
		m.bad("", "strategy %s: use rolling, immediate, canary or bluegreen", bourse.Quoted(string(app.Strategy)))
	}
	app.MaxUnavailable = cmp.Or(m.MaxUnavailable, valueOr(d.MaxUnavailable, DefaultMaxUnavailable))
	m.valid("", validMaxUnavailable(app.MaxUnavailable))
	app.Wait = bourse.Duration(cmp.Or(m.Wait, time.Duration(d.WaitTimeout), DefaultWait))
	app.Reserve = m.Reserve || d.Reserve
}

// checkStrategy adds a problem if the groups cannot be deployed with the strategy.
func (m *configMaker) checkStrategy(app *deploy.App) {
	if app.Strategy != deploy.Canary && app.Strategy != deploy.BlueGreen {
		return
	}
	checks := 0
	for i := range app.Groups {
		g := &app.Groups[i]
		if g.Mount != nil {
			at, _ := m.mount(g.Name)
			m.bad(at, "strategy %s creates additional machines, which cannot share the volumes of existing ones: use rolling or immediate", app.Strategy)
		}
		checks += len(workload.Checks(&g.Config))
	}
	if app.Strategy == deploy.BlueGreen && checks == 0 {
		m.bad("deploy.strategy", "strategy bluegreen requires a health check that tells when new machines can serve: add one under [http_service], [[services]] or [checks]")
	}
}

// command returns the release command, or nil if there is none.
func (m *configMaker) command() *deploy.Command {
	d := m.Deploy
	if d == nil || d.Command == "" || m.NoCommand {
		return nil
	}
	words, err := split(d.Command)
	if err != nil {
		return nil // the error has already been reported
	}
	config := m.baseConfig()
	config.Init.Cmd, config.Init.Exec = words, nil
	config.StoredConfig = bourse.StoredConfig{Rest: config.Rest} // the command runs only once and has no services
	config.Schedule, config.Standbys, config.DNS = "", nil, nil
	if config.ImageKind() == bourse.RegistryImage {
		config.DNS = &bourse.DNS{SkipRegistration: true}
	}
	config.Env["RELEASE_COMMAND"] = "1"
	config.AutoDestroy = true
	config.Restart = &bourse.Restart{Policy: bourse.RestartNo}
	guest, _ := bourse.ParseSize("shared-cpu-2x")
	if i, _ := nearest(m.VM, m.DefaultGroup(), vmProcesses); i >= 0 {
		guest, _ = m.VM[i].guest()
	}
	if m.Guest != nil {
		guest = *m.Guest
	}
	if d.CommandVM != nil {
		guest, _ = d.CommandVM.guest()
	}
	config.Guest = &guest
	if d.CommandVM != nil {
		if rest := d.CommandVM.rest(); len(rest) > 0 {
			config = withRest(config, "guest", rest)
		}
	}
	m.files(&config, m.DefaultGroup())
	m.requirements(&config, m.DefaultGroup())
	m.review(&config, paths{init: "deploy.release_command", vm: "deploy.release_command_vm", dedicated: "deploy.release_command_vm.host_dedication_id"})
	return &deploy.Command{Config: config, Timeout: cmp.Or(m.CommandTimeout, time.Duration(d.CommandTimeout), DefaultCommandTimeout)}
}
