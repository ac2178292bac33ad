package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy/config"
	"github.com/bourse-dev/bourse/internal/wholefile"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newConfigSave(s *cli.Shell) *cobra.Command {
	var f configFile
	var named string
	var yes bool
	c := &cobra.Command{
		Use:   "save [APP]",
		Short: "Write the configuration of an app to a file",
		Long: `Write the configuration of an app's newest release to a file. If no release has one,
the configuration is derived from the app's machines, as far as possible. A comment in
the file lists what is missing.`,
		Example:           "  bourse config save shop\n  bourse config save shop -c - | less",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cli.Complete(s.Apps),
		RunE: func(c *cobra.Command, _ []string) error {
			app := bourse.AppName(named)
			if err := app.Validate(); err != nil {
				return err
			}
			object, comments, err := definitionOf(c.Context(), s, app)
			if bourse.CodeOf(err) == bourse.CodeNotFound {
				return cli.Hint(err, "bourse app list", "bourse machine list --app "+string(app))
			}
			if err != nil {
				return err
			}
			return saveConfig(c.Context(), s, f.name, object, comments, yes)
		},
	}
	s.BindApp(c, &named).OrArgument()
	c.Flags().StringVarP(&f.name, "config", "c", "", "`file` to write, - for standard output (default: fly.toml, or bourse.toml if it contains fields that flyctl does not support)")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "overwrite the file without asking")
	return c
}

// definitionOf returns an app's configuration as JSON, and comments to write into the file.
func definitionOf(ctx context.Context, s *cli.Shell, app bourse.AppName) ([]byte, []string, error) {
	releases, err := s.Client().Releases(app).List(ctx, 0)
	if err != nil {
		return nil, nil, err
	}
	for i := range releases {
		if r := &releases[i]; len(r.Definition) > 0 && !bytes.Equal(bytes.TrimSpace(r.Definition), []byte("{}")) {
			said := fmt.Sprintf("Release v%d of app %s (%s)", r.Version, app, r.Status)
			if r.Image != "" {
				said += ", image " + r.Image
			}
			return r.Definition, []string{said + "."}, nil
		}
	}
	machines, silent, err := s.Client().Machines(ctx, app, machinesapi.ListMachines{})
	if err != nil {
		return nil, nil, err
	}
	object, notes, err := config.FromMachines(app, machines)
	comments := []string{
		fmt.Sprintf("Derived from the machines of app %s, because no release has a configuration.", app),
		"Check it before you deploy it.",
	}
	if len(silent) > 0 {
		notes = append(notes, fmt.Sprintf("machines on %s that did not answer", cli.Count(len(silent), "worker")))
	}
	if len(notes) > 0 {
		comments = append(comments, "It lacks:")
	}
	for _, n := range notes {
		comments = append(comments, "- "+n)
	}
	return object, comments, err
}

// saveConfig writes a configuration file, and reports errors in the configuration.
func saveConfig(ctx context.Context, s *cli.Shell, name string, object []byte, comments []string, yes bool) error {
	body, err := config.TOML(object)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, line := range comments {
		fmt.Fprintln(&text, "# "+strings.ReplaceAll(cli.Clean(line), "\n", " "))
	}
	text.WriteByte('\n')
	text.Write(body)
	if name == "" {
		name = "fly.toml"
		if c, err := config.Parse("bourse.toml", text.Bytes()); err == nil && c.HasBourseFields() {
			name = "bourse.toml"
		}
	}
	if name == "-" {
		_, err := s.Out.Write(text.Bytes())
		return err
	}
	if _, err := os.Stat(name); err == nil {
		if err := s.Confirm(ctx, yes, "overwrite "+name); err != nil {
			return err
		}
	}
	if err := wholefile.Write(name, text.Bytes(), 0o644); err != nil {
		return err
	}
	out := validated{File: name}
	if _, out.Warnings, err = resolveConfig(name, config.Options{}); err != nil {
		out.Problems, _ = errors.AsType[config.Problems](err)
	}
	if s.JSON {
		out.Valid = err == nil
		return s.PrintJSON(out)
	}
	for _, line := range comments {
		fmt.Fprintln(s.Err, cli.Clean(line))
	}
	for _, p := range out.Problems {
		fmt.Fprintln(s.Err, cli.Clean(p.Error()))
	}
	_, err = fmt.Fprintf(s.Out, "%s  written\n", cli.Clean(name))
	return err
}
