package machine

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

func TestPlace(t *testing.T) {
	t.Parallel()
	reply := machinesapi.PlacementList{Regions: []machinesapi.RegionPlacement{{Region: "gru", Count: 3, Concurrency: 2}, {Region: "mad", Count: 1, Concurrency: 1}}}
	var asked machinesapi.PlacementRequest
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/platform/placements" || json.NewDecoder(r.Body).Decode(&asked) != nil {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		clitest.Replies(http.StatusOK, reply).ServeHTTP(w, r)
	})
	const table = "REGION  MACHINES  WORKERS\ngru            3        2\nmad            1        1\n"
	for args, want := range map[string]struct {
		code int
		asks machinesapi.PlacementRequest
	}{
		"": {0, machinesapi.PlacementRequest{Org: "personal", Compute: &bourse.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256}}},
		"--org acme -r gru,any -n 4 --vm-size performance-2x --volume-size 10": {0, machinesapi.PlacementRequest{
			Org: "acme", Region: "gru,any", Count: 4, Compute: &bourse.Guest{CPUKind: "performance", CPUs: 2, MemoryMB: 4096}, VolumeBytes: 10 << 30,
		}},
		"-n 5 --volume-size 512MiB": {6, machinesapi.PlacementRequest{
			Org: "personal", Count: 5, Compute: &bourse.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256}, VolumeBytes: 512 << 20,
		}},
	} {
		asked = machinesapi.PlacementRequest{}
		got := line.Against(t, h, append([]string{"machine", "place"}, strings.Fields(args)...)...)
		if got.Code != want.code || got.Out != table || (got.Err == "") != (want.code == 0) {
			t.Errorf("%s: %+v", args, got)
		}
		if a, w := text(t, asked), text(t, want.asks); a != w {
			t.Errorf("%s: request %s, want %s", args, a, w)
		}
	}
	reply.Regions = reply.Regions[:0]
	if got := line.Against(t, h, "machine", "place", "--json"); got.Code != 6 || got.Out != "[]\n" || !strings.Contains(got.Err, "there is room for 0 of 1 machines") {
		t.Errorf("count that does not fit: %+v", got)
	}
	for _, args := range []string{"--count -1", "--count 0", "--volume-size much", "--vm-memory 0", "gru"} {
		if got := line.Against(t, h, append([]string{"machine", "place"}, strings.Fields(args)...)...); got.Code != 2 {
			t.Errorf("%s: %+v, want exit status 2", args, got)
		}
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestMachineListOfAnOrganization checks that all pages are fetched, and that a machine
// that changes between two pages is listed once.
func TestMachineListOfAnOrganization(t *testing.T) {
	t.Parallel()
	one := machinesapi.OrgMachine{
		ID: "148e21ea1d5389", Name: "one", App: "shop", Region: "gru", State: bourse.StateStarted, CreatedAt: "2026-03-04T11:00:00Z",
		Config: machinesapi.OrgMachineConfig{Image: "nginx", Guest: bourse.Guest{CPUs: 1, MemoryMB: 256}},
	}
	two, again := one, one
	two.ID, two.Name, two.App, two.CreatedAt = "148e21ea1d5390", "two", "blog", "2026-03-04T10:00:00Z"
	again.State = bourse.StateStopped
	pages := map[string]machinesapi.OrgMachines{
		"":  {Machines: []machinesapi.OrgMachine{one}, NextCursor: "a"},
		"a": {Machines: []machinesapi.OrgMachine{two}, NextCursor: "b"},
		"b": {Machines: []machinesapi.OrgMachine{again}},
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); r.URL.Path != "/v1/orgs/acme/machines" || q.Get("state") != "started" || q.Get("region") != "gru" {
			t.Errorf("unexpected request for %s", r.URL)
		}
		w.Header().Set(machinesapi.HeaderUnreachable, "gru-2")
		clitest.Replies(http.StatusOK, pages[r.URL.Query().Get("cursor")]).ServeHTTP(w, r)
	})
	got := line.Against(t, h, "machine", "list", "--org", "acme", "--state", "started", "-r", "gru", "-q")
	if want := "148e21ea1d5390\n148e21ea1d5389\n"; got.Code != 0 || got.Out != want || strings.Count(got.Err, "gru-2") != 1 {
		t.Errorf("%+v, want %q", got, want)
	}
	got = line.Against(t, h, "machine", "list", "--org", "acme", "--state", "started", "-r", "gru")
	if lines := strings.Split(got.Out, "\n"); len(lines) != 4 || !strings.Contains(lines[1], "two   blog  started  gru") || !strings.Contains(lines[2], "one   shop  stopped  gru") {
		t.Errorf("%+v", got)
	}
	for _, other := range []string{"--app=shop", "--all-apps", "--worker=gru-1", "--metadata=a=b"} {
		if got := line.Against(t, h, "machine", "list", "--org", "acme", other); got.Code != 2 {
			t.Errorf("--org and %s: %+v", other, got)
		}
	}
}
