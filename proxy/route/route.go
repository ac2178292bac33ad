// Package route implements a proxy's routing table. A table is a pure function of the
// view's apps, machines and workers. It is immutable; a new table replaces it.
//
// The table contains the machines that can serve a host name and port, and the known state
// of each. Package balance chooses among them.
package route

import (
	"cmp"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// App is an app with at least one service. It is identified by its id, because its name may
// have belonged to another app before.
type App struct {
	ID      string
	Name    bourse.AppName
	Org     string
	Network string // private network of its machines; empty: its organization's
}

// Target is the destination of requests for a host name and port.
type Target struct {
	App      *App
	Port     workload.Port // from the newest version of the service; First and Last are the ports with these backends
	Backends []Backend     // in order of machine id; never empty

	// Fixed marks a target that was made for one request and whose machines differ from the
	// table's. Later tables do not replace it.
	Fixed bool
}

// Key identifies a target across tables.
type Key struct {
	App  string // app id
	Port int    // first port
}

// Key returns the target's key.
func (t *Target) Key() Key { return Key{t.App.ID, t.Port.First} }

// Backend is a machine that may serve a target.
type Backend struct {
	Machine   bourse.MachineID
	Instance  bourse.InstanceID // version
	Boot      int               // number of its latest start
	Worker    bourse.WorkerID
	Region    bourse.Region
	State     bourse.State
	Service   workload.Service
	Cordoned  bool
	Failing   string // name of a failing check that decides whether requests reach it; empty: none
	Unchecked bool   // a deciding check has no result since the machine started
	Reachable bool   // its worker is a reachable member
	Standby   bool   // its worker starts it when a machine that it backs up is lost; requests never start it
	Unusable  string // why its configuration rules out any request; empty: it does not
}

// Running reports whether the machine is running according to the view.
func (b *Backend) Running() bool { return b.State == bourse.StateStarted }

// Starting reports whether the machine will be running soon without a request starting it.
func (b *Backend) Starting() bool {
	switch b.State {
	case bourse.StateStarting, bourse.StateRestarting, bourse.StateReplacing:
		return true
	case bourse.StateCreated, bourse.StateStarted, bourse.StateStopping, bourse.StateStopped, bourse.StateSuspending, bourse.StateSuspended,
		bourse.StateFailed, bourse.StateDestroying, bourse.StateDestroyed:
	}
	return false
}

// Startable reports whether a request may start or resume the machine.
func (b *Backend) Startable() bool {
	switch b.State {
	case bourse.StateStopped, bourse.StateSuspended, bourse.StateStopping, bourse.StateSuspending:
		return b.Service.Autostart
	case bourse.StateCreated, bourse.StateStarting, bourse.StateStarted, bourse.StateRestarting, bourse.StateReplacing, bourse.StateFailed,
		bourse.StateDestroying, bourse.StateDestroyed:
	}
	return false
}

// Table is an immutable routing table. The zero Table has no routes. It is safe for
// concurrent use.
type Table struct {
	apps    map[bourse.AppName]*servedApp
	domains map[string]bool
	hosts   map[string]bourse.AppName
	names   []bourse.AppName // of apps, sorted
}

// servedApp is an app and its targets, sorted by port; their ports do not overlap.
type servedApp struct {
	app     App
	targets []*Target
}

// Apps returns the names of all apps with targets, sorted. The caller must not modify the
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

// Current returns the target in this table that replaces a target of another table, or nil
// if there is none. It is identified by its app and first port. A fixed target is returned
// unchanged.
func (t *Table) Current(old *Target) *Target {
	if old.Fixed {
		return old
	}
	if s := t.apps[old.App.Name]; s != nil && s.app.ID == old.App.ID {
		return s.at(old.Port.First)
	}
	return nil
}

// Backend returns the target's machine with the given id, or nil.
func (t *Target) Backend(id bourse.MachineID) *Backend {
	i, found := slices.BinarySearchFunc(t.Backends, id, func(b Backend, id bourse.MachineID) int { return cmp.Compare(b.Machine, id) })
	if !found {
		return nil
	}
	return &t.Backends[i]
}

// at returns the target of a port, or nil.
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

// http returns the target for requests that name none of the app's ports: that of port 80,
// otherwise of port 443, otherwise the one with the lowest port that has the http handler.
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
