// Package route implements a proxy's routing table. A table is a pure function of the view's apps, machines and
// workers. Tables are immutable: a change results in a new table.
//
// A table contains the machines that can serve each host name and port, with the known state of each machine. Package
// balance chooses among them.
package route

import (
	"cmp"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// App is an app with at least one service. It is identified by its ID, because another app may have had the same name
// before.
type App struct {
	ID      string
	Name    bourse.AppName
	Org     string
	Network string // private network of the app's machines; "": its organization's network
}

// Target is the destination of requests to a host name and port.
type Target struct {
	App *App
	// Port contains the settings of the newest version of the service. First and Last are the range of ports that all
	// of Backends serve.
	Port     workload.Port
	Backends []Backend // sorted by machine ID; never empty

	// Fixed is set if the target was created for a single request and its machines differ from the table's. A fixed
	// target is not replaced by the corresponding target in a later table.
	Fixed bool
}

// Key identifies the same target in different tables.
type Key struct {
	App  string // app ID
	Port int    // first port
}

// Key returns the target's key.
func (t *Target) Key() Key { return Key{t.App.ID, t.Port.First} }

// Backend is a machine that may serve a target.
type Backend struct {
	Machine   bourse.MachineID
	Instance  bourse.InstanceID // version of the machine
	Boot      int               // number of the machine's latest start
	Worker    bourse.WorkerID
	Region    bourse.Region
	State     bourse.State
	Service   workload.Service
	Cordoned  bool
	Failing   string // name of a failing check that blocks requests; "": none
	Unchecked bool   // a check that can block requests has neither passed nor failed since the machine started
	Reachable bool   // the machine's worker is a reachable member
	Standby   bool   // the machine is a standby, which its worker starts when a primary machine is lost; requests never start it
	Unusable  string // why the machine's configuration makes it unusable; "": it is usable
}

// Running reports whether the machine is running according to the view.
func (b *Backend) Running() bool { return b.State == bourse.StateStarted }

// Starting reports whether the machine will soon be running even if no request starts it.
func (b *Backend) Starting() bool {
	switch b.State {
	case bourse.StateStarting, bourse.StateRestarting, bourse.StateReplacing:
		return true
	case bourse.StateCreated, bourse.StateStarted, bourse.StateStopping, bourse.StateStopped, bourse.StateSuspending, bourse.StateSuspended,
		bourse.StateFailed, bourse.StateDestroying, bourse.StateDestroyed:
	}
	return false
}

// Startable reports whether a request may start or resume the machine. This includes machines in StateCreated. Their
// state soon changes to StateStopped, and requests wait until then.
func (b *Backend) Startable() bool {
	switch b.State {
	case bourse.StateCreated, bourse.StateStopped, bourse.StateSuspended, bourse.StateStopping, bourse.StateSuspending:
		return b.Service.Autostart
	case bourse.StateStarting, bourse.StateStarted, bourse.StateRestarting, bourse.StateReplacing, bourse.StateFailed,
		bourse.StateDestroying, bourse.StateDestroyed:
	}
	return false
}

// Table is a routing table. It never changes, so it is safe for concurrent use. The zero Table has
// no routes.
type Table struct {
	apps    map[bourse.AppName]*servedApp
	domains map[string]bool
	hosts   map[string]bourse.AppName
	names   []bourse.AppName // names of the apps, sorted
}

// servedApp is an app with its targets. The targets are sorted by port, and their ports do not overlap.
type servedApp struct {
	app     App
	targets []*Target
}

// Apps returns the names of all apps that have targets, sorted. The caller must not modify the
// slice.
func (t *Table) Apps() []bourse.AppName { return t.names }

// App returns the targets of an app, sorted by port. The caller must not modify the slice.
func (t *Table) App(name bourse.AppName) []*Target {
	if s := t.apps[name]; s != nil {
		return s.targets
	}
	return nil
}

// Targets returns all targets, sorted by app name and port.
func (t *Table) Targets() []*Target {
	var out []*Target
	for _, name := range t.names {
		out = append(out, t.apps[name].targets...)
	}
	return out
}

// Current returns the target that corresponds to a target from an earlier table: the target of the same app that
// serves the old target's first port, or nil if there is none. A fixed target is returned unchanged.
func (t *Table) Current(old *Target) *Target {
	if old.Fixed {
		return old
	}
	if s := t.apps[old.App.Name]; s != nil && s.app.ID == old.App.ID {
		return s.at(old.Port.First)
	}
	return nil
}

// Backend returns the target's machine with the given ID, or nil if there is none.
func (t *Target) Backend(id bourse.MachineID) *Backend {
	i, found := slices.BinarySearchFunc(t.Backends, id, func(b Backend, id bourse.MachineID) int { return cmp.Compare(b.Machine, id) })
	if !found {
		return nil
	}
	return &t.Backends[i]
}

// at returns the target whose port range contains port, or nil if there is none.
func (s *servedApp) at(port int) *Target {
	i, j := 0, len(s.targets)
	for i < j {
		if m := (i + j) / 2; s.targets[m].Port.Last < port {
			i = m + 1
		} else {
			j = m
		}
	}
	if i == len(s.targets) || s.targets[i].Port.First > port {
		return nil
	}
	return s.targets[i]
}

// http returns the target for requests to a port that the app does not serve. Of the targets with the http handler, it
// prefers the one for port 80, then the one for port 443, then the one with the lowest port.
func (s *servedApp) http() *Target {
	var best *Target
	rank := func(t *Target) int {
		switch {
		case t.Port.First <= 80 && 80 <= t.Port.Last:
			return 0
		case t.Port.First <= 443 && 443 <= t.Port.Last:
			return 1
		}
		return 2
	}
	for _, t := range s.targets {
		if t.Port.Has(workload.HandlerHTTP) && (best == nil || cmp.Less(rank(t), rank(best))) {
			best = t
		}
	}
	return best
}
