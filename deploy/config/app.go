package config

import (
	"io/fs"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
)

// Options are what a command line says beside a file. The zero value says nothing.
type Options struct {
	Image    string            // instead of build.image
	App      bourse.AppName    // instead of app
	Primary  bourse.Region     // instead of primary_region
	Env      map[string]string // over env
	Guest    *bourse.Guest     // of every group, instead of vm
	NoSpares bool              // no group has a spare, unless the file says so

	Strategy       deploy.Strategy // instead of deploy.strategy
	MaxUnavailable float64         // instead of deploy.max_unavailable; 0: says nothing
	Wait           time.Duration   // instead of deploy.wait_timeout
	CommandTimeout time.Duration   // instead of deploy.release_command_timeout
	NoCommand      bool            // the release command is not run
	NoSmoke        bool            // a machine may end soon after its start
	Reserve        bool            // as deploy.reserve

	// Files has what local_path and machine_config name, from the directory of the
	// configuration down. Nil: such fields are refused.
	Files fs.FS
}

// Defaults of a deploy.
const (
	DefaultStrategy       = deploy.Rolling
	DefaultMaxUnavailable = 0.33
	DefaultWait           = 5 * time.Minute
	DefaultCommandTimeout = 5 * time.Minute
	DefaultGroup          = "app" // of a file without processes
)

// App returns what the app is to be. It reads options.Files and nothing else.
// The warnings are all that there are, those of [Config.Warnings] among them.
// CodeInvalid, wrapping all [Problems], for what cannot be.
func (c *Config) App(options Options) (deploy.App, []Warning, error) {
	return deploy.App{Name: bourse.AppName(c.AppName)}, c.Warnings(), nil
}
