// Package route is what a proxy routes where: a table that is a pure function of
// what the view says of apps, machines and workers. A table does not change once
// it is made; a new one takes its place.
//
// It says which machines could answer for a host name and port, and what is known
// of each. Which of them does is for proxy/balance.
package route

import (
	"cmp"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// App is an app that has a service, by its id: a name may have belonged to
// another app before.
type App struct {
	ID      string
	Name    bourse.AppName
	Org     string
	Network string // private network of its machines; empty: its organisation's
}

// Target is where requests for a host name and port go.
type Target struct {
	App      *App
	Port     workload.Port // of the newest version of the service; First and Last are the ports that have these backends
	Backends []Backend     // in order of machine id; never empty

	// Fixed is set of a target that is one request's own, as it has less machines than
	// the table's, or others: no later table changes it.
	Fixed bool
}

// Key names a target across tables: another table has another value for it.
type Key struct {
	App  string // id
	Port int    // first
}

// Key returns the target's.
func (t *Target) Key() Key { return Key{t.App.ID, t.Port.First} }

// Backend is a machine that could answer.
type Backend struct {
	Machine   bourse.MachineID
	Instance  bourse.InstanceID // its version
	Boot      int               // counts its starts
	Worker    bourse.WorkerID
	Region    bourse.Region
	State     bourse.State
	Service   workload.Service
	Cordoned  bool
	Failing   string // check that fails and decides whether requests reach it; empty: none
	Unchecked bool   // a check that decides has no result of this start yet
	Reachable bool   // its worker is a member that is heard from
	Standby   bool   // it stands by for other machines: its worker starts it when one of them is lost, and no request does: its service has no autostart
	Unusable  string // why no request may ever reach it, as it is configured; empty: one may
}

// Runs reports whether the machine runs, as far as the view says.
func (b *Backend) Running() bool { return b.State == bourse.StateStarted }

// Coming reports whether the machine will soon run, by what someone else has begun.
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

// Table is what is routed where. The zero Table routes nothing. It is safe for
// concurrent use: nothing in it changes.
type Table struct {
	apps    map[bourse.AppName]*servedApp
	domains map[string]bool
	hosts   map[string]bourse.AppName
	names   []bourse.AppName // of apps, sorted
}

// served is an app with its targets, in order of their ports, which do not overlap.
type servedApp struct {
	app     App
	targets []*Target
}

// Apps returns the names of the apps that serve anything, sorted. The slice is
// shared.
func (t *Table) Apps() []bourse.AppName { return t.names }

// App returns the targets of an app in order of their ports, none for an app that
// serves nothing. The slice is shared.
func (t *Table) App(name bourse.AppName) []*Target {
	if s := t.apps[name]; s != nil {
		return s.targets
	}
	return nil
}

// Targets returns all targets, by the name of their app, then by port.
func (t *Table) Targets() []*Target {
	var out []*Target
	for _, name := range t.names {
		out = append(out, t.apps[name].targets...)
	}
	return out
}

// Now returns what has become of a target of another table: that of its app and its
// first port. It is nil when there is none any more. One that is fixed stays as it is.
func (t *Table) Current(old *Target) *Target {
	if old.Fixed {
		return old
	}
	if s := t.apps[old.App.Name]; s != nil && s.app.ID == old.App.ID {
		return s.at(old.Port.First)
	}
	return nil
}

// Backend returns a machine of the target's, nil when it has none of this id.
func (t *Target) Backend(id bourse.MachineID) *Backend {
	i, found := slices.BinarySearchFunc(t.Backends, id, func(b Backend, id bourse.MachineID) int { return cmp.Compare(b.Machine, id) })
	if !found {
		return nil
	}
	return &t.Backends[i]
}

// at returns the target of a port, nil when there is none.
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

// http returns the target that requests mean which name no port of the app's: that of
// port 80, or of 443, or of the least that has handler http.
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
