package config

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy/config"
)

func newShow(s *cli.Shell) *cobra.Command {
	var f file
	var app, image, primary string
	c := &cobra.Command{
		Use:   "show",
		Short: "Show what a configuration makes of an app, with all defaults filled in",
		Long: `Show what a configuration makes of an app, with all defaults filled in: its process
groups, and the config that each of their machines has. Nothing is asked of the API.`,
		Example: "  bourse config show\n  bourse config show --json --image registry.example.com/shop:7",
		Args:    cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			name, err := f.find()
			if err != nil {
				return err
			}
			made, warnings, err := resolve(name, config.Options{App: bourse.AppName(app), Image: image, Primary: bourse.Region(primary)})
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
