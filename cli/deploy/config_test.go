package deploy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/deploy/config"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// writeConfig writes a configuration to a temporary directory and returns the file's name.
func written(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "fly.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestValidate(t *testing.T) {
	t.Parallel()
	good := written(t, "app = \"shop\"\nswap_size_mb = 512\n[build]\ndockerfile = \"Dockerfile\"\n")
	if got := line.Run(t, "config", "validate", "-c", good); got.Code != 0 ||
		got.Out != good+":2:16: warning: swap_size_mb: stored and returned, but without effect: a machine has no swap: memory_mb is its total memory\n"+good+"  valid, 1 warning\n" {
		t.Errorf("valid file: %+v", got)
	}
	bad := written(t, "app = \"shop\"\nconsole_command = \"irb\"\n\n[http_service]\n  internal_prt = 80\n  force_https = 1\n")
	got := line.Run(t, "config", "validate", "-c", bad)
	if want := bad + ":5:3: http_service.internal_prt: unknown field (did you mean internal_port?)\n" + bad + ":6:17: http_service.force_https: 1: use true or false\n" +
		bad + ":2:19: warning: console_command: apps have no console: use bourse machine exec to run a command\n"; got.Code != 2 || got.Out != want || got.Err != "" {
		t.Errorf("invalid file: %+v\nwant %s", got, want)
	}
	got = line.Run(t, "config", "validate", "-c", bad, "--json")
	var out validated
	if err := json.Unmarshal([]byte(got.Out), &out); err != nil || got.Code != 2 || out.Valid || len(out.Problems) != 2 || len(out.Warnings) != 1 || out.Problems[0].Line != 5 {
		t.Errorf("--json: %v %+v", err, got)
	}
	if got := line.Run(t, "config", "validate", "-c", filepath.Join(t.TempDir(), "fly.toml")); got.Code != 3 {
		t.Errorf("missing file: %+v", got)
	}
}

// TestConfigurationIsFound checks that without --config, the configuration in the working directory is used, and that
// bourse.toml takes precedence.
func TestConfigurationIsFound(t *testing.T) {
	t.Chdir(t.TempDir())
	if got := line.Run(t, "config", "validate"); got.Code != 3 || !strings.Contains(got.Err, "bourse config save APP") {
		t.Errorf("missing file: %+v", got)
	}
	for _, c := range []struct{ name, text string }{
		{"fly.yaml", "app: yaml"}, {"fly.json", `{"app": "json"}`}, {"fly.toml", `app = "toml"`}, {"bourse.toml", "app = \"ours\"\n[[groups]]\nregions = [\"gru\"]"},
	} {
		if err := os.WriteFile(c.name, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := line.Run(t, "config", "validate"); got.Code != 0 || !strings.HasPrefix(got.Out, c.name+"  valid") {
			t.Errorf("with %s: %+v", c.name, got)
		}
	}
}

func TestShow(t *testing.T) {
	t.Parallel()
	file := written(t, "app = \"shop\"\nprimary_region = \"gru\"\n[http_service]\n[[files]]\nguest_path = \"/etc/motd\"\nlocal_path = \"fly.toml\"\n")
	got := line.Run(t, "config", "show", "-c", file, "--image", "registry.example.com/shop:7")
	for _, want := range []string{"app = 'shop'\n", "strategy = 'rolling'\n", "[[groups]]\n", "internal_port = 8080\n", "image = 'registry.example.com/shop:7'\n"} {
		if !strings.Contains(got.Out, want) {
			t.Errorf("the output does not contain %q: %+v", want, got)
		}
	}
	if got := line.Run(t, "config", "show", "-c", file, "--json", "--app", "zoo"); got.Code != 0 || !strings.Contains(got.Out, `"app": "zoo"`) {
		t.Errorf("--json: %+v", got)
	}
	if got := line.Run(t, "config", "show", "-c", written(t, "ap = 1")); got.Code != 2 || !strings.Contains(got.Err, "did you mean app?") {
		t.Errorf("invalid file: %+v", got)
	}
}

func TestSave(t *testing.T) {
	t.Chdir(t.TempDir())
	const definition = `{"app":"shop","primary_region":"gru","http_service":{"internal_port":8080,"checks":[{"path":"/up"}]},"vm":[{"memory":"1gb"}]}`
	h := clitest.Paths(map[string]any{
		"/v1/apps/shop/releases": machinesapi.ReleaseList{Releases: []release.Release{
			{ID: "c", Version: 3, Status: release.Failed},
			{ID: "b", Version: 2, Status: release.Complete, Image: "registry.example.com/shop:2", Definition: json.RawMessage(definition)},
		}},
		"/v1/apps/ours/releases": machinesapi.ReleaseList{Releases: []release.Release{
			{ID: "b", Version: 1, Status: release.Complete, Definition: json.RawMessage(`{"app":"ours","groups":[{"regions":["gru"]}]}`)},
		}},
	})
	const want = `# Release v2 of app shop (complete), image registry.example.com/shop:2.

app = 'shop'
primary_region = 'gru'

[http_service]
internal_port = 8080

[[http_service.checks]]
path = '/up'

[[vm]]
memory = '1gb'
`
	if got := line.Against(t, h, "config", "save", "shop"); got.Code != 0 || got.Out != "fly.toml  written\n" {
		t.Fatalf("%+v", got)
	}
	if text, err := os.ReadFile("fly.toml"); err != nil || string(text) != want {
		t.Errorf("%v %s", err, text)
	}
	if got := line.Against(t, h, "config", "save", "shop"); got.Code != 2 || !strings.Contains(got.Err, "overwrite fly.toml") {
		t.Errorf("existing file: %+v", got)
	}
	if got := line.Against(t, h, "config", "save", "shop", "-c", "-"); got.Code != 0 || got.Out != want {
		t.Errorf("standard output: %+v", got)
	}
	if got := line.Against(t, h, "config", "save", "ours"); got.Code != 0 || got.Out != "bourse.toml  written\n" {
		t.Errorf("with fields that flyctl does not support: %+v", got)
	}
	if got := line.Against(t, h, "config", "save", "zoo"); got.Code != 3 || !strings.Contains(got.Err, "bourse app list") {
		t.Errorf("unknown app: %+v", got)
	}
}

// TestSaveOfMachines checks that the configuration of an app without a release is derived
// from its machines.
func TestSaveOfMachines(t *testing.T) {
	t.Parallel()
	configOf := func(group, text string) *bourse.Config {
		c := &bourse.Config{}
		if err := json.Unmarshal([]byte(text), c); err != nil {
			t.Fatal(err)
		}
		c.Metadata = map[string]string{"fly_process_group": group}
		return c
	}
	machine := func(id bourse.MachineID, c *bourse.Config) machinesapi.Machine {
		return machinesapi.Machine{Summary: machinesapi.Summary{ID: id, Region: "gru", UpdatedAt: "2026-11-21T12:00:00Z"}, Detail: machinesapi.Detail{Config: c}}
	}
	web := configOf("web", `{"image":"registry.example.com/shop:2","env":{"PRIMARY_REGION":"gru","A":"1","ONLY":"web"},"init":{"cmd":["sh","-c","serve 'all'"]},
		"guest":{"cpu_kind":"shared","cpus":2,"memory_mb":1024},"restart":{"policy":"no"},"stop_config":{"signal":"SIGTERM","timeout":"10s"},"dns":{},
		"mounts":[{"name":"data","path":"/data","size_gb":3,"volume":"vol_x"}],"files":[{"guest_path":"/etc/a","raw_value":"YQ=="}],
		"services":[{"protocol":"tcp","internal_port":8080,"autostop":true,"autostart":true,"ports":[{"port":80,"handlers":["http"]}],
		"checks":[{"type":"http","path":"/up","headers":[{"name":"Host","values":["shop"]}]},{"type":"tcp","interval":"10s"}]}],"checks":{"alive":{"type":"tcp","port":9}}}`)
	work := configOf("worker", `{"image":"registry.example.com/shop:2","env":{"PRIMARY_REGION":"gru","A":"1"},"init":{"cmd":["work"]},"guest":{"cpus":1,"memory_mb":256,"cpu_kind":"shared"}}`)
	h := clitest.Paths(map[string]any{
		"/v1/apps/shop/releases": machinesapi.ReleaseList{},
		"/v1/apps/shop/machines": []machinesapi.Machine{machine("148e21ea1d5381", web), machine("148e21ea1d5382", web), machine("148e21ea1d5383", work)},
		"/v1/apps/none/releases": machinesapi.ReleaseList{},
		"/v1/apps/none/machines": []machinesapi.Machine{},
	})
	got := line.Against(t, h, "config", "save", "shop", "-c", "-")
	clitest.Golden(t, "save_machines", got.Out)
	c, err := config.Parse("fly.toml", []byte(got.Out))
	if err != nil {
		t.Fatal(err)
	}
	app, _, err := c.App(config.Options{})
	if err != nil || len(app.Groups) != 2 || app.Groups[0].Mount == nil || app.Groups[0].Config.Init.Cmd[2] != "serve 'all'" {
		t.Errorf("the written file describes %+v, %v", app, err)
	}
	if got := line.Against(t, h, "config", "save", "none", "-c", "-"); got.Code != 3 {
		t.Errorf("app without machines: %+v", got)
	}
}
