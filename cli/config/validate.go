package config

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/config"
)

// Validated is what "config validate --json" prints.
type Validated struct {
	File     string           `json:"file"`
	Valid    bool             `json:"valid"`
	Warnings []config.Warning `json:"warnings,omitempty"`
	Problems config.Problems  `json:"problems,omitempty"`
}

func newValidate(s *cli.Shell) *cobra.Command {
	var f file
	c := &cobra.Command{
		Use:   "validate",
		Short: "Say what is wrong with a configuration, and what of it is not acted on",
		Long: `Say what is wrong with a configuration, and what of it is not acted on: a line for
each, with its place in the file. It ends with 2 where something is wrong. Nothing is
asked of the API.`,
		Example: "  bourse config validate\n  bourse config validate -c deploy/fly.toml --json",
		Args:    cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			name, err := f.find()
			if err != nil {
				return err
			}
			out := Validated{File: name}
			_, out.Warnings, err = resolve(name, config.Options{})
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

// resolve reads a configuration and makes the app of it; the image may be named later.
func resolve(name string, options config.Options) (app deploy.App, warnings []config.Warning, err error) {
	c, err := config.Load(name)
	if err != nil {
		if c != nil {
			warnings = c.Warnings()
		}
		return app, warnings, err
	}
	options.Later = true
	err = beside(name, func(files fs.FS) error {
		options.Files = files
		app, warnings, err = c.App(options)
		return err
	})
	return app, warnings, err
}

func printValidated(s *cli.Shell, v *Validated) error {
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
