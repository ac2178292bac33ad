// Package config has the commands of apps' configurations, fly.toml and bourse.toml,
// one verb a file.
package config

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy/config"
)

// New returns the commands of configurations.
func New(s *cli.Shell) *cobra.Command {
	return cli.Noun("config", "Look at what is written about an app: fly.toml, bourse.toml", newValidate(s), newShow(s), newSave(s))
}

// file is the flag that names a configuration.
type file struct{ name string }

func (f *file) flag(flags *pflag.FlagSet) {
	flags.StringVarP(&f.name, "config", "c", "", "`file` of the configuration (default: the first of bourse.toml, fly.toml, fly.json and fly.yaml that is here)")
}

// find returns the file that is meant.
func (f *file) find() (string, error) {
	if f.name != "" {
		return f.name, nil
	}
	name, err := config.Find(".")
	return name, cli.Hint(err, "name one: --config FILE", "write one of an app that runs: bourse config save APP")
}

// beside gives read the files beside a configuration and below it.
func beside(file string, read func(fs.FS) error) error {
	root, err := os.OpenRoot(filepath.Dir(file))
	if err != nil {
		return err
	}
	defer root.Close()
	return read(root.FS())
}
