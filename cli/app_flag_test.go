package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/clitest"
)

// printApp returns a command line whose commands print the app that they resolve.
func printApp() clitest.Line {
	command := func(use string, bind func(*cli.Shell, *cobra.Command, *string)) func(*cli.Shell) *cobra.Command {
		return func(s *cli.Shell) *cobra.Command {
			var app string
			c := &cobra.Command{Use: use, RunE: func(*cobra.Command, []string) error {
				_, err := fmt.Fprintf(s.Out, "%s\n", app)
				return err
			}}
			bind(s, c, &app)
			return c
		}
	}
	return clitest.Of(
		command("any", func(s *cli.Shell, c *cobra.Command, app *string) { s.BindApp(c, app) }),
		command("last", func(s *cli.Shell, c *cobra.Command, app *string) { s.BindApp(c, app); s.CommandLast(c) }),
		command("named", func(s *cli.Shell, c *cobra.Command, app *string) { s.BindApp(c, app).OrArgument() }),
		command("must", func(s *cli.Shell, c *cobra.Command, app *string) { s.BindApp(c, app).Required(c, new(string)) }),
		command("list", func(s *cli.Shell, c *cobra.Command, app *string) {
			s.BindApp(c, app).Unless("all")
			c.Flags().Bool("all", false, "")
			c.Flags().Bool("quiet", false, "")
		}),
	)
}

// TestSourcesOfTheApp checks the order in which the app is looked up: the flag, BOURSE_APP,
// the working directory's configuration, and then the default app.
func TestSourcesOfTheApp(t *testing.T) {
	const shop = "app = \"shop\"\n"
	for name, tc := range map[string]struct {
		files map[string]string
		env   string
		args  []string
		code  int
		out   string
		said  []string // texts expected on standard error; nil means that it must be empty
	}{
		"no file":                       {args: []string{"any"}, out: "default\n"},
		"a file":                        {files: map[string]string{"fly.toml": shop}, args: []string{"any"}, out: "shop\n", said: []string{"shop", "fly.toml"}},
		"bourse.toml first":             {files: map[string]string{"fly.toml": shop, "bourse.toml": "app = \"zoo\""}, args: []string{"any"}, out: "zoo\n", said: []string{"zoo", "bourse.toml"}},
		"the flag":                      {files: map[string]string{"fly.toml": shop}, env: "env", args: []string{"any", "--app", "zoo"}, out: "zoo\n"},
		"the environment":               {files: map[string]string{"fly.toml": shop}, env: "env", args: []string{"any"}, out: "env\n"},
		"the flag after an argument":    {files: map[string]string{"fly.toml": shop}, args: []string{"last", "image", "--app", "zoo"}, out: "zoo\n"},
		"a remote command":              {files: map[string]string{"fly.toml": shop}, args: []string{"last", "image", "--", "--app", "zoo"}, out: "shop\n", said: []string{"fly.toml"}},
		"an argument":                   {files: map[string]string{"fly.toml": shop}, args: []string{"named", "zoo"}, out: "zoo\n"},
		"no argument":                   {files: map[string]string{"fly.toml": shop}, args: []string{"named"}, out: "shop\n", said: []string{"fly.toml"}},
		"both an argument and the flag": {args: []string{"named", "zoo", "--app", "shop"}, code: 2, said: []string{"zoo", "shop"}},
		"several apps":                  {files: map[string]string{"fly.toml": "broken"}, args: []string{"list", "--all"}, out: "\n"},
		"quiet":                         {files: map[string]string{"fly.toml": shop}, args: []string{"list", "--quiet"}, out: "shop\n"},
		"with --json":                   {files: map[string]string{"fly.toml": shop}, args: []string{"any", "--json"}, out: "shop\n"},
		"a broken file":                 {files: map[string]string{"fly.toml": "app = \"shop\nx"}, args: []string{"any"}, code: 2, said: []string{"fly.toml:1:", "--app"}},
		"a broken file and the flag":    {files: map[string]string{"fly.toml": "app = \"shop\nx"}, args: []string{"any", "-a", "zoo"}, out: "zoo\n"},
		"another mistake":               {files: map[string]string{"fly.toml": shop + "kill_timeout = true\n"}, args: []string{"any"}, out: "shop\n", said: []string{"fly.toml"}},
		"a file without an app":         {files: map[string]string{"fly.toml": "primary_region = \"gru\"\n"}, args: []string{"any"}, code: 2, said: []string{"fly.toml"}},
		"an invalid name":               {files: map[string]string{"fly.toml": "app = \"No Name\"\n"}, args: []string{"any"}, code: 2, said: []string{"fly.toml", "No Name"}},
		"an empty flag":                 {args: []string{"any", "--app="}, code: 2, said: []string{"--app"}},
		"a command without a default":   {args: []string{"must"}, code: 2, said: []string{"--app NAME"}},
		"a parent's file":               {files: map[string]string{"../fly.toml": shop}, args: []string{"any"}, out: "default\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "here")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			t.Chdir(dir)
			for file, text := range tc.files {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got := printApp().RunWith(t, map[string]string{"BOURSE_APP": tc.env}, tc.args...)
			if got.Code != tc.code || got.Out != tc.out || len(tc.said) == 0 && got.Err != "" {
				t.Errorf("%q: %+v, want %d and %q", tc.args, got, tc.code, tc.out)
			}
			for _, want := range tc.said {
				if !strings.Contains(got.Err, want) {
					t.Errorf("%q: stderr %q does not contain %q", tc.args, got.Err, want)
				}
			}
		})
	}
}
