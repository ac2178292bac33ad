package deploy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

var line = clitest.Of(New, NewRollback, NewReleases, NewScale, NewConfig, NewImage)

func TestMain(m *testing.M) { clitest.InUTC(m) }

// fake is an API with at most one app, whose state can be read. It accepts requests for
// quotes, and records new apps and releases. Any other request, such as one that changes a
// machine, fails the test.
type fake struct {
	http.Handler
	mu       sync.Mutex
	made     []string // names of the created apps
	releases []machinesapi.CreateRelease
}

// fakeState is the state that a fake reports.
type fakeState struct {
	app      bool
	machines []machinesapi.Machine
	releases []release.Release
	quote    bourse.Decision
}

func newFake(t *testing.T, have fakeState) *fake {
	t.Helper()
	f := &fake{}
	mux := http.NewServeMux()
	f.Handler = mux
	reply := func(body any) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if !have.app {
				clitest.Failure(bourse.CodeNotFound, "app not found").ServeHTTP(w, r)
				return
			}
			clitest.Replies(http.StatusOK, body).ServeHTTP(w, r)
		}
	}
	if have.machines == nil {
		have.machines = []machinesapi.Machine{}
	}
	mux.Handle("GET /v1/apps/shop/machines", reply(have.machines))
	mux.Handle("GET /v1/apps/shop/volumes", reply([]machinesapi.Volume{}))
	mux.Handle("GET /v1/apps/shop/releases", reply(machinesapi.ReleaseList{Releases: have.releases}))
	mux.Handle("GET /v1/apps/shop/machines/{id}/versions", reply([]machinesapi.Version{}))
	mux.Handle("POST /v1/apps/{app}/quotes", clitest.Replies(http.StatusOK, have.quote))
	mux.HandleFunc("POST /v1/apps/shop/releases", func(w http.ResponseWriter, r *http.Request) {
		var in machinesapi.CreateRelease
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.releases = append(f.releases, in)
		clitest.Failure(bourse.CodeInternal, "the release was recorded").ServeHTTP(w, r) // the error ends the deploy here
	})
	mux.Handle("GET /v1/apps/shop/proxies", reply(machinesapi.ProxyList{Proxies: []machinesapi.Proxy{
		{ID: "proxy-gru", Routes: []machinesapi.ProxyRoute{{App: "shop", URLs: []string{"http://shop.localhost:8080/"}}}},
	}}))
	mux.HandleFunc("POST /v1/apps", func(w http.ResponseWriter, r *http.Request) {
		var in machinesapi.CreateApp
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.made = append(f.made, string(in.Name))
		clitest.Replies(http.StatusCreated, machinesapi.App{Name: in.Name}).ServeHTTP(w, r)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s", r.Method, r.URL)
		clitest.Failure(bourse.CodeInternal, "not expected").ServeHTTP(w, r)
	})
	return f
}

var quoted = bourse.Decision{Outcome: bourse.OutcomeQuoted, Rounds: []bourse.Round{{Ranked: []bourse.Ranking{{Worker: "gru-1"}, {Worker: "gru-2"}}}}}

// shopFile writes a configuration and returns the flag that names it.
func shopFile(t *testing.T, more string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "fly.toml")
	text := "app = \"shop\"\nprimary_region = \"gru\"\n[build]\nimage = \"host\"\n[processes]\nweb = \"sleep 600\"\n" + more
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "--config=" + file
}

// deployed returns the machines and the release of an app that was deployed from a file.
func deployed(t *testing.T, file string) fakeState {
	t.Helper()
	f := deployFlags{target: target{config: strings.TrimPrefix(file, "--config=")}, ha: true, smoke: true}
	w, err := f.want(t.Context(), &cli.Shell{})
	if err != nil {
		t.Fatal(err)
	}
	p := deploy.Make(w.App, deploy.State{App: "shop"}, deploy.Options{Release: "01JD3V7K7Y5C5ZQ7W1R2M3N4P5", Version: 1})
	out := fakeState{app: true, quote: quoted}
	for i := range p.Steps {
		s := &p.Steps[i]
		do, ok := s.Do.(deploy.MakeMachine)
		if !ok {
			continue
		}
		id := bourse.MachineID("148e21ea1d53" + string(rune('a'+len(out.machines))) + "0")
		config := *do.Config
		if do.StandbyOf != nil {
			config.Standbys = []bourse.MachineID{out.machines[0].ID}
		}
		m := bourse.Machine{ID: id, App: "shop", Name: "m" + string(rune('1'+len(out.machines))), Region: s.Region, State: bourse.StateStarted, Config: config, Instance: "01JD3V7K7Y5C5ZQ7W1R2M3N4P6", Worker: "gru-1"}
		if do.Stopped {
			m.State = bourse.StateStopped
		}
		out.machines = append(out.machines, machinesapi.FromMachine(&m))
	}
	metadata, err := w.metadata()
	if err != nil {
		t.Fatal(err)
	}
	out.releases = []release.Release{{
		ID: "01JD3V7K7Y5C5ZQ7W1R2M3N4P5", App: "shop", Version: 1, Status: release.Complete, Strategy: "rolling", Image: "host",
		Definition: w.Definition, Metadata: metadata, CreatedAt: clitest.Now.Add(-time.Hour),
	}}
	return out
}

// TestPlanChangesNothing checks that --plan changes nothing, and that its exit status is 0 if there is nothing to do
// and 2 if there are changes.
func TestPlanChangesNothing(t *testing.T) {
	file := shopFile(t, "")
	have := deployed(t, file)
	for name, tt := range map[string]struct {
		have fakeState
		args []string
		code int
		want string
	}{
		"nothing to do":     {have, []string{file}, 0, "nothing to do"},
		"a new environment": {have, []string{file, "-e", "MODE=fast"}, 2, "env"},
		"no app":            {fakeState{quote: quoted}, []string{file}, 2, "web"},
		"no room":           {fakeState{quote: bourse.Decision{Outcome: bourse.OutcomeRefused, Rounds: []bourse.Round{{Refusals: []bourse.Refusal{{Worker: "gru-1", Reason: bourse.RefusedResource, Resource: "memory", Detail: "too large"}}}}}}, []string{file}, 1, "too large"},
		"no configuration":  {have, []string{"--config=" + filepath.Join(t.TempDir(), "fly.toml")}, 1, ""},
		"a strategy":        {have, []string{file, "--strategy", "big bang"}, 1, ""},
		"a bad file":        {have, []string{shopFile(t, "kill_timeout = [")}, 1, ""},
		"two ways":          {have, []string{file, "-e", "A"}, 1, ""},
	} {
		got := line.Against(t, newFake(t, tt.have), append([]string{"deploy", "--plan"}, tt.args...)...)
		if got.Code != tt.code || !strings.Contains(got.Out, tt.want) {
			t.Errorf("%s: exit status %d, want %d, with %q\n%s%s", name, got.Code, tt.code, tt.want, got.Out, got.Err)
		}
		if tt.code == 1 && !strings.HasPrefix(got.Err, "error: ") && !strings.Contains(got.Err, "\nerror: ") {
			t.Errorf("%s: the output does not contain the reason: %s", name, got.Err)
		}
		js := line.Against(t, newFake(t, tt.have), append([]string{"deploy", "--plan", "--json"}, tt.args...)...)
		var printed struct{ Plan *deploy.Plan }
		if err := json.Unmarshal([]byte(js.Out), &printed); js.Code != tt.code || err != nil || tt.code != 1 && printed.Plan == nil {
			t.Errorf("%s --json: exit status %d, %v:\n%s", name, js.Code, err, js.Out)
		}
	}
}

// TestNothingToDo checks that a deploy records no release if the app is up to date.
func TestNothingToDo(t *testing.T) {
	file := shopFile(t, "")
	f := newFake(t, deployed(t, file))
	if got := line.Against(t, f, "deploy", file); got.Code != 0 || got.Out != "shop  nothing to do: the app is up to date\n" || len(f.releases) > 0 {
		t.Errorf("%+v, %d releases", got, len(f.releases))
	}
}

// TestRecordOfDeploy checks that a deploy records a release with everything that is needed
// to resume it or to roll back to it.
func TestRecordOfDeploy(t *testing.T) {
	f := newFake(t, fakeState{quote: quoted})
	f.Handler.(*http.ServeMux).Handle("GET /v1/x", clitest.Replies(200, nil))
	got := line.Against(t, f, "deploy", shopFile(t, "[deploy]\nstrategy = \"immediate\"\n"), "-m", "a first try")
	if len(f.releases) != 1 || len(f.made) != 1 || f.made[0] != "shop" || !strings.Contains(got.Err, "app shop created") {
		t.Fatalf("%+v: apps %q, %d releases", got, f.made, len(f.releases))
	}
	r := f.releases[0]
	if r.Status != release.Pending || r.Strategy != "immediate" || r.Image != "host" || r.Description != "a first try" || !json.Valid(r.Definition) {
		t.Errorf("%+v", r)
	}
	w, err := wantOf(&release.Release{Metadata: r.Metadata, Definition: r.Definition})
	if err != nil || w.App.Strategy != deploy.Immediate || w.App.Groups[0].Name != "web" {
		t.Errorf("%+v, %v", w, err)
	}
}

// TestNoRoom checks that nothing is recorded if no worker would accept a machine.
func TestNoRoom(t *testing.T) {
	f := newFake(t, fakeState{quote: bourse.Decision{Outcome: bourse.OutcomeRefused, Rounds: []bourse.Round{{Refusals: []bourse.Refusal{{Worker: "gru-1", Reason: bourse.RefusedResource, Resource: "memory", Detail: "it is too large"}}}}}})
	got := line.Against(t, f, "deploy", shopFile(t, ""))
	if got.Code != 6 || len(f.releases) > 0 || len(f.made) > 0 || !strings.Contains(got.Err, "gru-1: it is too large") {
		t.Errorf("%+v: apps %q, %d releases", got, f.made, len(f.releases))
	}
}

// TestNoImage checks that a deploy fails before anything is recorded if the registry does
// not have the image.
func TestNoImage(t *testing.T) {
	file := shopFile(t, "")
	have := deployed(t, file)
	f := newFake(t, have)
	const gone = "registry.example.com/shop:gone: the registry has no such image"
	f.Handler.(*http.ServeMux).Handle("GET /v1/apps/shop/images/resolve", clitest.Failure(bourse.CodeNotFound, gone))
	if got := line.Against(t, f, "deploy", file, "--image", "registry.example.com/shop:gone"); got.Code != 3 || len(f.releases) > 0 || !strings.Contains(got.Err, gone) {
		t.Errorf("%+v: %d releases", got, len(f.releases))
	}
}

func TestResumeAndRollback(t *testing.T) {
	file := shopFile(t, "")
	have := deployed(t, file)
	for name, tt := range map[string]struct {
		status release.Status
		args   []string
		code   int
		want   string
	}{
		"resume of a complete release":    {release.Complete, []string{"deploy", "--resume"}, 5, "nothing to resume"},
		"nothing before":                  {release.Complete, []string{"rollback"}, 5, "no complete release before v1"},
		"no such release":                 {release.Complete, []string{"rollback", "v7"}, 3, "release \"v7\" not found"},
		"rollback to the current release": {release.Complete, []string{"rollback", "v1"}, 0, "nothing to do"},
		"after a failure":                 {release.Failed, []string{"rollback"}, 0, "nothing to roll back"},
		"undo --plan":                     {release.Running, []string{"rollback", "--plan"}, 2, "the release created it"},
		"resume --plan":                   {release.Running, []string{"deploy", "--resume", "--plan"}, 0, "nothing to do"},
	} {
		have.releases[0].Status = tt.status
		got := line.Against(t, newFake(t, have), append(tt.args, "-a", "shop")...)
		if got.Code != tt.code || !strings.Contains(got.Out+got.Err, tt.want) {
			t.Errorf("%s: want %d and %q, got %+v", name, tt.code, tt.want, got)
		}
	}
}

// TestRollbackWithoutVersions checks that a rollback fails if a machine's earlier versions cannot be read. Otherwise it
// would destroy the machine, as if the release had created it.
func TestRollbackWithoutVersions(t *testing.T) {
	have := deployed(t, shopFile(t, ""))
	have.releases[0].Status = release.Running
	f := newFake(t, have)
	f.Handler.(*http.ServeMux).Handle("GET /v1/apps/shop/machines/"+string(have.machines[0].ID)+"/versions", clitest.Failure(bourse.CodeUnavailable, "the broker is restarting"))
	if got := line.Against(t, f, "rollback", "--plan", "-a", "shop"); got.Code != 1 || !strings.Contains(got.Err, "the broker is restarting") || strings.Contains(got.Out, "destroy") {
		t.Errorf("%+v", got)
	}
}

func TestFormer(t *testing.T) {
	list := func(statuses ...release.Status) (out []release.Release) {
		for i, s := range statuses {
			out = append(out, release.Release{ID: release.ID(rune('a' + i)), Version: int64(len(statuses) - i), Status: s})
		}
		return out
	}
	for _, tt := range []struct {
		list  []release.Release
		named string
		want  int64
	}{
		{list(release.Complete, release.Complete), "", 1},
		{list(release.Complete, release.Failed, release.Complete), "", 1},
		{list(release.Complete, release.Failed), "", -1},
		{list(release.Failed, release.Complete, release.Complete), "", 0},
		{list(release.Complete, release.Complete, release.Failed), "v1", 1},
		{list(release.Complete, release.Complete), "2", 2},
		{list(release.Complete, release.Complete), "b", 1},
		{list(release.Complete), "v9", -1},
	} {
		r, err := former(tt.list, tt.named)
		got := int64(0)
		if err != nil {
			got = -1
		} else if r != nil {
			got = r.Version
		}
		if got != tt.want {
			t.Errorf("%v, %q: %d, want %d (%v)", tt.list, tt.named, got, tt.want, err)
		}
	}
}

func TestSpread(t *testing.T) {
	for _, tt := range []struct {
		there map[bourse.Region]int
		n     int
		want  map[bourse.Region]int
	}{
		{map[bourse.Region]int{"gru": 1, "mad": 1}, 3, map[bourse.Region]int{"gru": 2, "mad": 1}},
		{map[bourse.Region]int{"gru": 1, "mad": 4}, 6, map[bourse.Region]int{"gru": 2, "mad": 4}},
		{map[bourse.Region]int{"gru": 1, "mad": 4}, 2, map[bourse.Region]int{"gru": 1, "mad": 1}},
		{map[bourse.Region]int{"gru": 3}, 0, map[bourse.Region]int{"gru": 0}},
	} {
		if diff := cmp.Diff(tt.want, adjustRegions(tt.there, tt.n)); diff != "" {
			t.Errorf("%v to %d (-want +got):\n%s", tt.there, tt.n, diff)
		}
	}
}

func TestReleases(t *testing.T) {
	list := machinesapi.ReleaseList{Releases: []release.Release{
		{ID: "b", Version: 2, Status: release.Running, Strategy: "rolling", Image: "registry.example.com/acme/shop:deployment-01JD3V7K7Y5C5ZQ7W1R2M3N4P5", User: "ann", Description: "a faster basket, and prices with taxes", CreatedAt: clitest.Now.Add(-time.Minute)},
		{ID: "a", Version: 1, Status: release.Complete, CreatedAt: clitest.Now.Add(-50 * time.Hour)},
	}}
	h := clitest.Paths(map[string]any{"/v1/apps/shop/releases": list, "/v1/apps/new/releases": machinesapi.ReleaseList{}})
	line.Screens(t, "releases", h, "releases", "-a", "shop")
	if got := line.Against(t, h, "releases", "-a", "shop", "--json"); !strings.Contains(got.Out, `"version": 2`) {
		t.Errorf("--json: %+v", got)
	}
	if got := line.Against(t, h, "releases", "-a", "new"); got.Code != 0 || !strings.Contains(got.Err, "no releases") {
		t.Errorf("none: %+v", got)
	}
	if got := line.Against(t, h, "releases", "-a", "zoo"); got.Code != 3 || !strings.Contains(got.Err, "bourse app list") {
		t.Errorf("unknown app: %+v", got)
	}
	if got := line.Against(t, h, "releases", "-a", "shop", "--limit=-1"); got.Code != 2 {
		t.Errorf("a negative limit: %+v", got)
	}
}

func TestScaleShow(t *testing.T) {
	line.Screens(t, "scale_show", newFake(t, deployed(t, shopFile(t, ""))), "scale", "show", "-a", "shop")
	many := deployed(t, shopFile(t, ""))
	for i, region := range []bourse.Region{"fra", "gru", "mad"} {
		for n := range 4 {
			m := many.machines[0]
			config := *m.Config
			config.Guest = &bourse.Guest{CPUKind: bourse.CPUPerformance, CPUs: 16, MemoryMB: 131072, GPUs: 2, GPUKind: "a100-sxm4-80gb"}
			m.ID, m.Region, m.Config, m.State = bourse.MachineID(fmt.Sprintf("22e00000000%d%02d", i, n)), region, &config, bourse.States()[2*n]
			many.machines = append(many.machines, m)
		}
	}
	line.Screens(t, "scale_show_many", newFake(t, many), "scale", "show", "-a", "shop")
}

// TestScalePlans checks the plans of scale commands.
func TestScalePlans(t *testing.T) {
	have := deployed(t, shopFile(t, ""))
	for name, tt := range map[string]struct {
		args []string
		code int
		want string
	}{
		"more":         {[]string{"count", "3"}, 2, "create"},
		"elsewhere":    {[]string{"count", "web=1", "--region", "mad"}, 2, "mad"},
		"no such":      {[]string{"count", "api=1"}, 1, "api"},
		"no number":    {[]string{"count", "many"}, 1, "many"},
		"larger":       {[]string{"vm", "shared-cpu-2x"}, 2, "update"},
		"no such size": {[]string{"vm", "enormous"}, 1, "enormous"},
	} {
		got := line.Against(t, newFake(t, have), append(append([]string{"scale"}, tt.args...), "--plan", "-a", "shop")...)
		if got.Code != tt.code || !strings.Contains(got.Out+got.Err, tt.want) {
			t.Errorf("%s: want %d and %q, got %+v", name, tt.code, tt.want, got)
		}
	}
}

// TestScaleRegions checks that the number of machines is the total for the listed regions,
// divided equally among them, and that running the same command again changes nothing.
func TestScaleRegions(t *testing.T) {
	type counts = map[bourse.Region]int
	for name, tt := range map[string]struct {
		now    counts
		region string
		n      int
		want   counts
	}{
		"from one":                   {counts{"gru": 1}, "gru,mad", 3, counts{"gru": 2, "mad": 1}},
		"as listed":                  {counts{"ord": 1}, "mad, gru", 3, counts{"ord": 1, "mad": 2, "gru": 1}},
		"existing machines stay":     {counts{"gru": 1, "mad": 2}, "gru,mad", 3, counts{"gru": 1, "mad": 2}},
		"all machines in one region": {counts{"gru": 3}, "gru,mad", 3, counts{"gru": 2, "mad": 1}},
		"fewer":                      {counts{"gru": 3, "mad": 3, "ord": 1}, "gru,mad", 2, counts{"gru": 1, "mad": 1, "ord": 1}},
		"none":                       {counts{"gru": 3, "mad": 3}, "gru,mad", 0, counts{"gru": 0, "mad": 0}},
		"one region":                 {counts{"gru": 1, "mad": 1}, "mad", 4, counts{"gru": 1, "mad": 4}},
		"twice":                      {counts{"gru": 1}, "mad,mad,gru", 2, counts{"gru": 1, "mad": 1}},
		"without a list of regions":  {counts{"gru": 1, "mad": 1}, "", 4, counts{"gru": 2, "mad": 2}},
		"more regions than ":         {counts{"gru": 1}, "gru,mad,ord", 1, counts{"gru": 1, "mad": 0, "ord": 0}},
	} {
		have := &appState{}
		for region, n := range tt.now {
			for range n {
				c := &bourse.Config{Metadata: map[string]string{deploy.KeyPlatform: deploy.Platform, deploy.KeyGroup: "web"}}
				have.Machines = append(have.Machines, machinesapi.Machine{Summary: machinesapi.Summary{Region: region, State: bourse.StateStarted}, Detail: machinesapi.Detail{Config: c}})
			}
		}
		regions, err := regionsOf(tt.region)
		if err != nil {
			t.Fatal(err)
		}
		got := counts{}
		all, err := countsOf(have, "", regions, []string{fmt.Sprint(tt.n)})
		for _, c := range all["web"] {
			got[c.Region] += c.Count
		}
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	for _, list := range []string{"any", "gru,", "gru,eu", "GRU MAD"} {
		if _, err := regionsOf(list); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%q: %v, want invalid", list, err)
		}
	}
}

// TestDeployPrintsTheURL checks that a deploy of an app with ports prints the URL where proxies serve the app.
func TestDeployPrintsTheURL(t *testing.T) {
	for name, tt := range map[string]struct {
		more string
		args []string
		want string
	}{
		"without ports": {"", nil, ""},
		"with ports":    {"[http_service]\ninternal_port = 8080\nprocesses = [\"web\"]\n", nil, "http://shop.localhost:8080/\n"},
		"with --json":   {"[http_service]\ninternal_port = 8080\nprocesses = [\"web\"]\n", []string{"--json"}, ""},
	} {
		file := shopFile(t, tt.more)
		got := line.Against(t, newFake(t, deployed(t, file)), append([]string{"deploy", file}, tt.args...)...)
		if has := strings.Contains(got.Out, "http://"); got.Code != 0 || !strings.HasSuffix(got.Out, tt.want) || has != (tt.want != "") {
			t.Errorf("%s: %+v, want %q", name, got, tt.want)
		}
	}
}

// FuzzRelease checks that arbitrary release contents are either rejected or result in a desired state for which a plan
// can be created without a panic.
func FuzzRelease(f *testing.F) {
	f.Add([]byte(`{"bourse_want":{"app":"shop","groups":[{"name":"web","config":{"image":"host"},"counts":[{"region":"gru","count":2}]}],"strategy":"rolling"}}`), []byte(`{}`))
	f.Add([]byte(`{"bourse_want":null}`), []byte(`{"app":"shop","primary_region":"gru","build":{"image":"host"},"processes":{"web":"sleep 600"}}`))
	f.Add([]byte(`[]`), []byte(`null`))
	f.Add([]byte(`{"bourse_want":{"groups":[{"mount":{}},{}],"max_unavailable":-1,"release_command":{}}}`), []byte(``))
	f.Fuzz(func(t *testing.T, metadata, definition []byte) {
		w, err := wantOf(&release.Release{App: "shop", Metadata: metadata, Definition: definition})
		if (w == nil) == (err == nil) {
			t.Fatalf("%v, %v", w, err)
		}
		if err != nil {
			return
		}
		for _, g := range w.App.Groups {
			for _, c := range g.Counts {
				if c.Count > 100 { // a plan for so many machines takes too long
					return
				}
			}
		}
		_ = deploy.Make(w.App, deploy.State{App: "shop"}, deploy.Options{})
	})
}
