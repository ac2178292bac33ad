package deploy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/config"
)

// NewConfig returns the "bourse config" commands.
func NewConfig(s *cli.Shell) *cobra.Command {
	return cli.Noun("config", "Validate, show and save configurations: fly.toml, bourse.toml", newConfigValidate(s), newConfigShow(s), newConfigSave(s))
}

// configFile is the value of the --config flag.
type configFile struct{ name string }

func (f *configFile) flag(flags *pflag.FlagSet) {
	flags.StringVarP(&f.name, "config", "c", "", "configuration `file` (default: the first of bourse.toml, fly.toml, fly.json and fly.yaml in this directory)")
}

// find returns the name of the configuration file, which defaults to the one in the working
// directory.
func (f *configFile) find() (string, error) {
	if f.name != "" {
		return f.name, nil
	}
	name, err := config.Find(".")
	return name, cli.Hint(err, "--config FILE", "bourse config save APP, to write one for an existing app")
}

// withFiles calls read with the directory that contains the given configuration file. The file
// system passed to read does not follow symbolic links out of that directory.
func withFiles(file string, read func(fs.FS) error) error {
	root, err := os.OpenRoot(filepath.Dir(file))
	if err != nil {
		return err
	}
	defer root.Close()
	return read(root.FS())
}

// validated is the output of "config validate --json".
type validated struct {
	File     string           `json:"file"`
	Valid    bool             `json:"valid"`
	Warnings []config.Warning `json:"warnings,omitempty"`
	Problems config.Problems  `json:"problems,omitempty"`
}

func newConfigValidate(s *cli.Shell) *cobra.Command {
	var f configFile
	c := &cobra.Command{
		Use:   "validate",
		Short: "Report errors in a configuration, and settings without effect",
		Long: `Report errors in a configuration, and settings without effect, each with its
position in the file. The exit status is 2 if there are errors. No API is used.`,
		Example: "  bourse config validate\n  bourse config validate -c deploy/fly.toml --json",
		Args:    cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			name, err := f.find()
			if err != nil {
				return err
			}
			out := validated{File: name}
			_, out.Warnings, err = resolveConfig(name, config.Options{})
			if err != nil {
				var is bool
				if out.Problems, is = errors.AsType[config.Problems](err); !is {
					return err
				}
			}
			out.Valid = err == nil
			return printValidated(s, &out)
		},
	}
	f.flag(c.Flags())
	return c
}

// resolveConfig reads a configuration and returns the desired state of its app. The configuration
// need not name an image.
func resolveConfig(name string, options config.Options) (app deploy.App, warnings []config.Warning, err error) {
	c, err := config.Load(name)
	if err != nil {
		if c != nil {
			warnings = c.Warnings()
		}
		return app, warnings, err
	}
	options.BuildLater = true
	err = withFiles(name, func(files fs.FS) error {
		options.Files = files
		app, warnings, err = c.App(options)
		return err
	})
	return app, warnings, err
}

func printValidated(s *cli.Shell, v *validated) error {
	if s.JSON {
		if err := s.PrintJSON(v); err != nil {
			return err
		}
	} else {
		for _, p := range v.Problems {
			fmt.Fprintln(s.Out, cli.Clean(p.Error()))
		}
		for _, w := range v.Warnings {
			fmt.Fprintln(s.Out, cli.Clean(config.Problem{Position: w.Position, Message: "warning: " + w.Field + ": " + w.Message}.Error()))
		}
		if v.Valid {
			fmt.Fprintf(s.Out, "%s  valid, %s\n", cli.Clean(v.File), cli.Count(len(v.Warnings), "warning"))
		}
	}
	if !v.Valid {
		return cli.ExitStatus(2)
	}
	return nil
}

func newConfigShow(s *cli.Shell) *cobra.Command {
	var f configFile
	var app, image, primary string
	c := &cobra.Command{
		Use:   "show",
		Short: "Show the app that a configuration describes, with all defaults",
		Long: `Show the app that a configuration describes, with all defaults: its process groups,
and the config of their machines. No API is used.`,
		Example: "  bourse config show\n  bourse config show --json --image registry.example.com/shop:7",
		Args:    cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			name, err := f.find()
			if err != nil {
				return err
			}
			made, warnings, err := resolveConfig(name, config.Options{App: bourse.AppName(app), Image: image, Primary: bourse.Region(primary)})
			for _, w := range warnings {
				fmt.Fprintln(s.Err, cli.Clean("warning: "+w.String()))
			}
			if err != nil {
				return err
			}
			if s.JSON {
				return s.PrintJSON(made)
			}
			raw, err := json.Marshal(made)
			if err != nil {
				return err
			}
			text, err := config.TOML(raw)
			if err != nil {
				return err
			}
			_, err = s.Out.Write(text)
			return err
		},
	}
	f.flag(c.Flags())
	c.Flags().StringVarP(&app, "app", "a", "", "`name` of the app, instead of the file's")
	c.Flags().StringVarP(&image, "image", "i", "", "`image`, instead of the file's")
	c.Flags().StringVar(&primary, "primary-region", "", "`region` of the first machines, instead of the file's")
	return c
}
