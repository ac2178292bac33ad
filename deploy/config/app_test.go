package config_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/config"
)

var update = flag.Bool("update", false, "write the golden files")

// options returns the options for the files in testdata.
func options() config.Options {
	return config.Options{Image: "registry.example/app:1", Files: os.DirFS("testdata/apps")}
}

// nameOf returns the name under which a file in testdata is parsed.
func nameOf(file string) string {
	if strings.HasPrefix(filepath.Base(file), "bourse-") {
		return "bourse.toml"
	}
	return "fly.toml"
}

// TestApps checks that typical files result in the apps and warnings in their golden files, even after conversion to
// JSON or YAML.
func TestApps(t *testing.T) {
	files, err := filepath.Glob("testdata/apps/*.toml")
	if err != nil || len(files) < 25 {
		t.Fatalf("%d files of apps, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".toml"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c, err := config.Parse(nameOf(file), text)
			if err != nil {
				t.Fatal(err)
			}
			app, warnings := appOf(t, c)
			golden(t, strings.TrimSuffix(file, "toml")+"golden", shown(t, app, warnings))

			written, err := c.JSON()
			if err != nil {
				t.Fatal(err)
			}
			again(t, strings.Replace(nameOf(file), "toml", "json", 1), written, app, warnings)
			inTOML, err := config.TOML(written)
			if err != nil {
				t.Fatal(err)
			}
			again(t, nameOf(file), inTOML, app, warnings)
			var plain any
			if err := json.Unmarshal(written, &plain); err != nil {
				t.Fatal(err)
			}
			inYAML, err := yaml.Marshal(plain)
			if err != nil {
				t.Fatal(err)
			}
			again(t, strings.Replace(nameOf(file), "toml", "yaml", 1), inYAML, app, warnings)
		})
	}
}

func appOf(t *testing.T, c *config.Config) (deploy.App, []config.Warning) {
	t.Helper()
	o := options()
	if c.Build != nil && c.Build.Image != "" || c.MachineConfig != "" {
		o.Image = ""
	}
	app, warnings, err := c.App(o)
	if err != nil {
		t.Fatal(err)
	}
	return app, warnings
}

// again parses a configuration in another syntax and checks that the app and the warnings
// are the same.
func again(t *testing.T, name string, text []byte, want deploy.App, warned []config.Warning) {
	t.Helper()
	c, err := config.Parse(name, text)
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, text)
	}
	app, warnings := appOf(t, c)
	if diff := cmp.Diff(want, app); diff != "" {
		t.Errorf("%s results in a different app (-toml +this):\n%s", name, diff)
	}
	if diff := cmp.Diff(withoutPlaces(warned), withoutPlaces(warnings)); diff != "" {
		t.Errorf("%s results in different warnings (-toml +this):\n%s", name, diff)
	}
}

// withoutPlaces removes positions from warnings. It omits warnings about fields that are not in Definition, because
// conversions lose them.
func withoutPlaces(list []config.Warning) map[string]bool {
	out := map[string]bool{}
	for _, w := range list {
		if f := strings.NewReplacer("[0]", "", "[1]", "").Replace(w.Field); !ignored[f] {
			out[w.Field+": "+w.Message] = true
		}
	}
	return out
}

var ignored = func() map[string]bool {
	out := map[string]bool{}
	for _, f := range config.Fields() {
		out[f.Path] = f.Treatment == config.Ignored
	}
	return out
}()

func shown(t *testing.T, app deploy.App, warnings []config.Warning) string {
	t.Helper()
	var b strings.Builder
	for _, w := range warnings {
		fmt.Fprintln(&b, w)
	}
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(app); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// TestAListOfProcesses checks that a list of processes is ignored, as in flyctl, with a warning if it is not empty.
func TestAListOfProcesses(t *testing.T) {
	for text, want := range map[string]int{"[[processes]]\n": 0, "[[processes]]\nweb = \"run\"\n": 1} {
		c, err := config.Parse("fly.toml", []byte("app = \"a\"\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		if warnings := c.Warnings(); len(warnings) != want || want == 1 && warnings[0].Field != "processes" {
			t.Errorf("%q: %+v", text, warnings)
		}
	}
}
