package route_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy/route"
)

var update = flag.Bool("update", false, "write testdata instead of comparing with it")

// TestGolden checks the complete table of a cluster in the middle of a deploy.
func TestGolden(t *testing.T) {
	t.Parallel()
	const next = `[{"internal_port":8081,"ports":[{"port":80,"handlers":["http"]},{"port":443,"handlers":["tls","http"]},{"start_port":8000,"end_port":8002}],
		"checks":[{"type":"http","path":"/up"}],"concurrency":{"type":"requests","hard_limit":9}},
		{"internal_port":53,"protocol":"udp","ports":[{"port":53}]},{"internal_port":80,"ports":[{"port":80},{"port":8001}]}]`
	with := func(m bourse.Machine, change func(*bourse.Machine)) bourse.Machine {
		change(&m)
		return m
	}
	updated := machine("web", 2, 2, next)
	updated.Instance = "01JGJ0000000000000000000V2"
	updated.Config.Checks = json.RawMessage(`{"ready":{"port":1,"kind":"readiness"},"told":{"port":1}}`)
	in := input([]bourse.App{app("web"), app("gone"), app("quiet")},
		machine("web", 1, 1, web),
		with(updated, func(m *bourse.Machine) {
			m.Checks = &bourse.CheckResults{Boot: 1, Results: []bourse.CheckStatus{
				{Name: "ready", Status: bourse.CheckPassing}, {Name: "told", Status: bourse.CheckCritical}, {Name: "servicecheck-00-http-8081", Status: bourse.CheckCritical},
			}}
		}),
		with(updated, func(m *bourse.Machine) { m.ID, m.State, m.Cordoned = "00000200000003", bourse.StateStopped, true }),
		with(updated, func(m *bourse.Machine) { m.ID, m.Worker, m.Region = "00000300000004", "w3", "mad" }),
		with(machine("web", 1, 5, web), func(m *bourse.Machine) { m.State = bourse.StateDestroyed }),
		with(machine("web", 1, 6, web), func(m *bourse.Machine) { m.Worker = "w9" }), // this machine's ID names worker w1
		with(machine("web", 1, 7, web), func(m *bourse.Machine) { m.AppID = bourse.IDOf("an app before") }),
		with(machine("web", 1, 8, web), func(m *bourse.Machine) { m.Config.Image = bourse.ImagePull }),
		with(machine("web", 1, 9, web), func(m *bourse.Machine) {
			m.State, m.Config.Standbys = bourse.StateStopped, []bourse.MachineID{"00000100000001"}
		}),
		with(machine("web", 1, 14, web), func(m *bourse.Machine) {
			m.State, m.Config.Standbys, m.Boot.PromotedFor = bourse.StateStopped, []bourse.MachineID{"00000100000001"}, "00000100000001"
		}),
		with(machine("default", 1, 10, web), func(m *bourse.Machine) { m.AppID = bourse.DefaultApp(bourse.App{}).ID }),
		machine("gone", 1, 11, web),
		machine("quiet", 1, 12, `[{"internal_port":80},{"internal_port":81,"ports":[]}]`),
		machine("never", 1, 13, web),
		machine("quiet", 1, 14, `[{"ports":[{"port":0}]}]`),
	)
	deleted := at.Add(1)
	in.Apps[1].DeletedAt = &deleted
	in.ReachableWorker = func(tag bourse.WorkerTag) (bourse.WorkerID, bool) { return workerOf(tag), tag != 3 }
	got := text(route.Build(in))
	file := filepath.Join("testdata", "table.txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil { //nolint:gosec // a file in the source tree
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// text returns a readable description of a table.
func text(table *route.Table) string {
	var out strings.Builder
	for _, t := range table.Targets() {
		fmt.Fprintf(&out, "%s %d-%d %v force_https=%v\n", t.App.Name, t.Port.First, t.Port.Last, t.Port.Handlers, t.Port.ForceHTTPS)
		for _, b := range t.Backends {
			fmt.Fprintf(&out, "\t%s %s boot %d on %s in %s %s, to port %d, soft %d hard %d", b.Machine, b.Instance, b.Boot, b.Worker, b.Region, b.State,
				b.Service.InternalPort, b.Service.Concurrency.Soft, b.Service.Concurrency.Hard)
			words := map[string]bool{
				", cordoned": b.Cordoned, ", unproven": b.Unchecked, ", unheard": !b.Reachable, ", spare": b.Standby, ", startable": b.Startable(),
			}
			for _, word := range slices.Sorted(maps.Keys(words)) {
				if words[word] {
					out.WriteString(word)
				}
			}
			if b.Failing != "" {
				out.WriteString(", fails " + b.Failing)
			}
			if b.Unusable != "" {
				out.WriteString(", never: " + b.Unusable)
			}
			out.WriteByte('\n')
		}
	}
	return out.String()
}

// TestTableIsOfItsInput checks that no target contains another app's machine, and that the order of the input does not
// matter.
func TestTableIsOfItsInput(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "default"}
	rapid.Check(t, func(t *rapid.T) {
		var apps []bourse.App
		for _, name := range names[:rapid.IntRange(0, 3).Draw(t, "apps")] {
			a := app(name)
			a.Generation = rapid.IntRange(0, 1).Draw(t, "life")
			if rapid.IntRange(0, 4).Draw(t, "deleted") == 0 {
				a.DeletedAt = &at
			}
			apps = append(apps, a)
		}
		var list []bourse.Machine
		for i := range rapid.IntRange(0, 12).Draw(t, "machines") {
			m := machine(rapid.SampledFrom(names).Draw(t, "app"), bourse.WorkerTag(rapid.IntRange(1, 3).Draw(t, "worker")), i, drawServices(t))
			m.AppID = rapid.SampledFrom([]string{m.AppID, "", "another", bourse.DefaultApp(bourse.App{}).ID}).Draw(t, "id")
			m.Instance = rapid.SampledFrom([]bourse.InstanceID{"01JGJ0000000000000000000V1", "01JGJ0000000000000000000V2"}).Draw(t, "instance")
			m.State = rapid.SampledFrom(bourse.States()).Draw(t, "state")
			m.Cordoned = rapid.Bool().Draw(t, "cordoned")
			list = append(list, m)
		}
		in := input(apps, list...)
		in.Hosts = map[string]bourse.AppName{"one.example": "a"}
		table := route.Build(in)
		checkTable(t, table, in)
		again := in
		again.Apps, again.Machines = shuffled(t, apps), shuffled(t, list)
		if diff := cmp.Diff(table.Targets(), route.Build(again).Targets()); diff != "" {
			t.Errorf("in another order (-one +other):\n%s", diff)
		}
	})
}

func drawServices(t *rapid.T) string {
	var out []string
	for range rapid.IntRange(0, 3).Draw(t, "services") {
		var ports []string
		for range rapid.IntRange(0, 3).Draw(t, "ports") {
			first := rapid.IntRange(1, 9).Draw(t, "first")
			ports = append(ports, fmt.Sprintf(`{"start_port":%d,"end_port":%d}`, first, first+rapid.IntRange(0, 4).Draw(t, "more")))
		}
		out = append(out, fmt.Sprintf(`{"internal_port":%d,"protocol":"%s","ports":[%s]}`, rapid.IntRange(0, 3).Draw(t, "internal"),
			rapid.SampledFrom([]string{"tcp", "udp"}).Draw(t, "protocol"), strings.Join(ports, ",")))
	}
	return "[" + strings.Join(out, ",") + "]"
}

func shuffled[T any](t *rapid.T, list []T) []T {
	list = slices.Clone(list)
	rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] }) //nolint:gosec // not security-sensitive
	return list
}

// checkTable compares a table with the configurations of all machines, port by port.
func checkTable(t *rapid.T, table *route.Table, in route.Input) {
	machines := map[bourse.MachineID]*bourse.Machine{}
	for i := range in.Machines {
		machines[in.Machines[i].ID] = &in.Machines[i]
	}
	for _, name := range []bourse.AppName{"a", "b", "c", "default"} {
		for port := range 16 {
			target, err := table.Find(string(name)+".localhost", port)
			var got []bourse.MachineID
			if err == nil {
				if len(target.Backends) == 0 || target.App.Name != name || port < target.Port.First || port > target.Port.Last {
					t.Fatalf("%s:%d is %+v", name, port, target)
				}
				for _, b := range target.Backends {
					got = append(got, b.Machine)
					m := machines[b.Machine]
					if a := (bourse.App{Name: name, ID: target.App.ID, CreatedAt: at}); m.App != name || m.AppID != "" && !m.OwnedBy(&a) {
						t.Fatalf("%s:%d reaches machine %s of app %s %q", name, port, m.ID, m.App, m.AppID)
					}
				}
			}
			want := serving(in, name, port)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s:%d (-want +got):\n%s", name, port, diff)
			}
		}
	}
}

// serving is a simple reference implementation that returns which machines serve an app's port.
func serving(in route.Input, name bourse.AppName, port int) []bourse.MachineID {
	owner := bourse.App{}
	for _, a := range in.Apps {
		if a.Name == name {
			owner = a
		}
	}
	if name == bourse.DefaultAppName && owner.ID == "" {
		owner = bourse.DefaultApp(bourse.App{})
	}
	if owner.ID == "" || owner.DeletedAt != nil {
		return nil
	}
	var out []bourse.MachineID
	for i := range in.Machines {
		m := &in.Machines[i]
		if !m.OwnedBy(&owner) || m.State == bourse.StateDestroyed {
			continue
		}
		var list []struct {
			Protocol string
			Ports    []struct {
				First int `json:"start_port"`
				Last  int `json:"end_port"`
			}
		}
		if err := json.Unmarshal(m.Config.Services, &list); err != nil {
			panic(err)
		}
		has := false
		for _, s := range list {
			for _, p := range s.Ports {
				has = has || s.Protocol == "tcp" && p.First <= port && port <= p.Last
			}
		}
		if has {
			out = append(out, m.ID)
		}
	}
	slices.Sort(out)
	return out
}

// TestBounds checks the limits for a single machine.
func TestBounds(t *testing.T) {
	t.Parallel()
	var ports []string
	for i := range 5000 {
		ports = append(ports, fmt.Sprintf(`{"start_port":%d,"end_port":%d}`, i+1, 60000-i))
	}
	services := `[{"ports":[` + strings.Join(ports, ",") + `]}]`
	var list []bourse.Machine
	for i := range 400 {
		list = append(list, machine("web", 1, i, services))
	}
	table := route.Build(input([]bourse.App{app("web")}, list...))
	total := 0
	for _, target := range table.App("web") {
		total += len(target.Backends)
	}
	if n := len(table.App("web")); n == 0 || n > 256 || total > 1<<16 {
		t.Errorf("%d targets with %d backends", n, total)
	}
}

// cluster returns a cluster with the given number of apps with ten machines each.
func cluster(apps int) route.Input {
	in := input(nil)
	for i := range apps {
		name := fmt.Sprintf("app-%d", i)
		in.Apps = append(in.Apps, app(name))
		for j := range 10 {
			services := strings.Replace(web, "8080", fmt.Sprint(1024+i), 1)
			in.Machines = append(in.Machines, machine(name, bourse.WorkerTag(j+1), i, services))
		}
	}
	return in
}

func BenchmarkBuild(b *testing.B) {
	in := cluster(1000)
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			route.Build(in)
		}
	})
	b.Run("again", func(b *testing.B) {
		b.ReportAllocs()
		var builder route.Builder
		builder.Build(in)
		for b.Loop() {
			builder.Build(in)
		}
	})
}

func BenchmarkFind(b *testing.B) {
	table := route.Build(cluster(1000))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := table.Find("app-500.localhost", 443); err != nil {
			b.Fatal(err)
		}
	}
}
