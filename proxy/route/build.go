package route

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// Input contains all data from which a table is built.
type Input struct {
	Apps     []bourse.App // may contain deleted apps
	Machines []bourse.Machine
	// ReachableWorker returns the reachable worker with the given tag. If ReachableWorker is nil, no worker is
	// reachable.
	ReachableWorker func(bourse.WorkerTag) (bourse.WorkerID, bool)
	Domains         []string                  // parent domains of the apps' host names, such as "localhost"
	Hosts           map[string]bourse.AppName // additional host names and their apps
}

// Limits on the resources that one app can use in a proxy, because apps may be malicious. Ports, targets and backends
// beyond these limits are not served.
const (
	maxPorts    = 128     // ports and port ranges of one machine
	maxTargets  = 256     // targets of one app
	maxBackends = 1 << 16 // backends of all targets of one app
)

// Build builds a table. It is a pure function. The order of apps and machines does not matter. A machine with an
// invalid configuration does not serve requests.
func Build(in Input) *Table { return new(Builder).Build(in) }

// Builder builds one table after another. It caches the parsed configurations of machines that still exist. The zero
// value is ready to use. A Builder is not safe for concurrent use.
type Builder struct{ configs map[string]*parsedConfig }

// Build does the same as the function [Build], but faster, because it uses the cache.
func (b *Builder) Build(in Input) *Table {
	t := &Table{apps: map[bourse.AppName]*servedApp{}, domains: map[string]bool{}, hosts: map[string]bourse.AppName{}}
	for _, d := range in.Domains {
		if d, ok := normalHost(strings.TrimPrefix(d, ".")); ok {
			t.domains[d] = true
		}
	}
	for host, name := range in.Hosts {
		if host, ok := normalHost(host); ok {
			t.hosts[host] = name
		}
	}
	apps := activeApps(in.Apps)
	before := b.configs
	b.configs = make(map[string]*parsedConfig, len(before))
	byApp := map[bourse.AppName][]*candidate{}
	for i := range in.Machines {
		m := &in.Machines[i]
		app, ok := apps[m.App]
		if !ok || !m.OwnedBy(&app) || m.State == bourse.StateDestroyed || len(m.Config.Services) == 0 {
			continue
		}
		worker, reachable := bourse.WorkerID(""), false
		if in.ReachableWorker != nil {
			worker, reachable = in.ReachableWorker(m.ID.Tag())
		}
		if reachable && worker != m.Worker {
			continue // the machine's ID belongs to another worker, so the machine could not be reached
		}
		byApp[m.App] = append(byApp[m.App], newCandidate(m, reachable, b.parsed(m, before)))
	}
	for name, list := range byApp {
		a := apps[name]
		s := &servedApp{app: App{ID: a.ID, Name: a.Name, Org: a.Org, Network: a.Network}}
		if s.targets = targets(&s.app, list); len(s.targets) > 0 {
			t.apps[name] = s
		}
	}
	t.names = slices.Sorted(maps.Keys(t.apps))
	return t
}

// activeApps returns the apps that are not deleted. They include the default app, which exists even if nobody has
// created it.
func activeApps(list []bourse.App) map[bourse.AppName]bourse.App {
	apps := make(map[bourse.AppName]bourse.App, len(list)+1)
	for _, a := range list {
		if other, twice := apps[a.Name]; twice {
			a = a.Merge(other)
		}
		apps[a.Name] = a
	}
	if d := apps[bourse.DefaultAppName]; d.ID == "" || d.DeletedAt != nil {
		apps[bourse.DefaultAppName] = bourse.DefaultApp(d)
	}
	maps.DeleteFunc(apps, func(name bourse.AppName, a bourse.App) bool { return a.DeletedAt != nil || name.Validate() != nil })
	return apps
}

// candidate is a machine that may serve requests, with its parsed configuration.
type candidate struct {
	backend Backend // the machine; fields that depend on the service are not set
	*parsedConfig
	failing  []string // for each service, the name of a failing check that blocks requests; "": none
	unproven []bool
}

func newCandidate(m *bourse.Machine, reachable bool, r *parsedConfig) *candidate {
	c := &candidate{parsedConfig: r, backend: Backend{
		Machine: m.ID, Instance: m.Instance, Boot: m.Boot.Number, Worker: m.Worker, Region: m.Region, State: m.State,
		Cordoned: m.Cordoned, Reachable: reachable,
		Standby: r.standby && m.Boot.PromotedFor == "", // a promoted standby counts as a normal machine, even after it has stopped
	}}
	if m.Config.ImageKind() == bourse.PollerImage {
		c.backend.Unusable = "it runs on its poller's host, where its ports cannot be reached"
	}
	c.failing, c.unproven = r.health(m)
	return c
}

// entry is one of a machine's ports or port ranges.
type entry struct {
	*candidate
	service int // index of the service in the configuration
	port    *workload.Port
}

// targets groups an app's machines by port. If port ranges overlap, for example because different versions of the app
// have different ranges, the ranges are split into parts that do not overlap, and each part becomes its own target.
func targets(app *App, list []*candidate) []*Target {
	slices.SortFunc(list, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(a.backend.Machine, b.backend.Machine), cmp.Compare(a.backend.Worker, b.backend.Worker))
	})
	list = slices.CompactFunc(list, func(a, b *candidate) bool { return a.backend.Machine == b.backend.Machine })
	var entries []entry
	var edges []int // the first port of each range, and the first port after each range
	for _, c := range list {
		n := 0
		for i := range c.services {
			if c.services[i].Protocol != workload.ProtocolTCP {
				continue
			}
			for j := range c.services[i].Ports {
				if n++; n > maxPorts {
					break
				}
				p := &c.services[i].Ports[j]
				entries = append(entries, entry{c, i, p})
				edges = append(edges, p.First, p.Last+1)
			}
		}
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	at := make([][]entry, len(edges)) // at[i] contains the entries whose ranges include the ports from edges[i] up to the next edge
	for _, e := range entries {
		i, _ := slices.BinarySearch(edges, e.port.First)
		for ; i < min(len(edges), maxTargets) && edges[i] <= e.port.Last; i++ {
			if n := len(at[i]); n == 0 || at[i][n-1].candidate != e.candidate { // if several services of a machine include the port, use the first one
				at[i] = append(at[i], e)
			}
		}
	}
	var out []*Target
	var before []entry
	total := 0
	for i, here := range at {
		if total += len(here); len(here) == 0 || total > maxBackends {
			continue
		}
		t := newTarget(app, here, edges[i], edges[i+1]-1)
		var shared []Backend
		if len(out) > 0 {
			shared = out[len(out)-1].Backends
		}
		t.Backends = backends(here, before, shared)
		out, before = append(out, t), here
	}
	return out
}

// newTarget returns a target without backends.
func newTarget(app *App, list []entry, first, last int) *Target {
	newest := slices.MaxFunc(list, func(a, b entry) int {
		x, y := &a.backend, &b.backend
		return cmp.Or(compareBool(!x.Cordoned, !y.Cordoned), cmp.Compare(x.Instance, y.Instance), cmp.Compare(x.Machine, y.Machine))
	})
	t := &Target{App: app, Port: *newest.port}
	t.Port.First, t.Port.Last = first, last
	return t
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// backends returns the machines in a list of entries. before and shared are the entries and backends of the previous
// target. If both targets have the same machines and services, which is common for apps with two ports, backends
// returns shared. The targets then share one list.
func backends(list, before []entry, shared []Backend) []Backend {
	if slices.EqualFunc(list, before, func(a, b entry) bool { return a.candidate == b.candidate && a.service == b.service }) {
		return shared
	}
	out := make([]Backend, len(list))
	for i, e := range list {
		out[i] = e.backend
		out[i].Service, out[i].Failing, out[i].Unchecked = e.services[e.service], e.failing[e.service], e.unproven[e.service]
		if e.backend.Standby {
			out[i].Service.Autostart = false
		}
	}
	return out
}
