package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy/config"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newSave(s *cli.Shell) *cobra.Command {
	var f file
	var named string
	var yes bool
	c := &cobra.Command{
		Use:   "save [APP]",
		Short: "Write the configuration that an app was deployed with",
		Long: `Write the configuration that an app was deployed with: what its newest release has
of it. Of an app that no release has a configuration of, it is made of its machines, as
far as they say; a comment in the file says so, and what it lacks.`,
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
			return save(c.Context(), s, f.name, object, comments, yes)
		},
	}
	s.BindApp(c, &named).OrArgument()
	c.Flags().StringVarP(&f.name, "config", "c", "", "`file` to write, - for standard output (default: fly.toml, or bourse.toml when it has what flyctl does not know)")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "overwrite the file without asking")
	return c
}

// definitionOf returns the configuration of an app as JSON, and what is to be said of it.
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
		fmt.Sprintf("Made of the machines of app %s: no release has a configuration.", app),
		"Look at it before you deploy it.",
	}
	if len(silent) > 0 {
		notes = append(notes, fmt.Sprintf("machines of %s, which did not answer", cli.Count(len(silent), "worker")))
	}
	if len(notes) > 0 {
		comments = append(comments, "What it has not:")
	}
	for _, n := range notes {
		comments = append(comments, "- "+n)
	}
	return object, comments, err
}

// save writes the file, and says what of it would not do.
func save(ctx context.Context, s *cli.Shell, name string, object []byte, comments []string, yes bool) error {
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
		if c, err := config.Parse("bourse.toml", text.Bytes()); err == nil && c.Ours() {
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
	if err := write(name, text.Bytes()); err != nil {
		return err
	}
	out := Validated{File: name}
	if _, out.Warnings, err = resolve(name, config.Options{}); err != nil {
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

// write writes a file whole or not at all.
func write(name string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".bourse-*.toml")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
