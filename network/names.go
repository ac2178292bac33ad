package network

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// Names provides the apps and machines to which DNS names refer. If a method returns an error, the
// resolver answers SERVFAIL.
type Names interface {
	// App returns the app with the given name. It returns false if there is no such app or if the
	// app was deleted.
	App(name bourse.AppName) (bourse.App, bool, error)
	// Machines returns an app's machines on this worker, in any state, and those on other workers
	// that can be reached through the mesh.
	Machines(app *bourse.App) ([]bourse.Machine, error)
	// Apps returns all apps, including deleted ones, whose DeletedAt is set.
	Apps() ([]bourse.App, error)
}

// record contains the resolver's data about a machine.
type record struct {
	id       bourse.MachineID
	name     string
	region   bourse.Region
	address  netip.Addr
	metadata map[string]string
	listed   bool // whether the machine is running and has not opted out of being listed
	ready    bool // whether the machine is listed and its readiness checks pass
}

// processGroup is the metadata key of a machine's process group.
const processGroup = "fly_process_group"

// recordOf returns the resolver's record for a machine. It returns false if the machine was
// destroyed, uses the host's network, or has an address outside the given network. Such a machine
// has no name in the network.
func recordOf(m *bourse.Machine, network string) (record, bool) {
	if m.PrivateIP != bourse.PrivateAddress(network, m.ID) || !m.PrivateIP.IsValid() || m.State == bourse.StateDestroyed {
		return record{}, false
	}
	listed := m.State == bourse.StateStarted && (m.Config.DNS == nil || !m.Config.DNS.SkipRegistration)
	return record{
		id: m.ID, name: m.Name, region: m.Region, address: m.PrivateIP, metadata: m.Config.Metadata,
		listed: listed, ready: listed && workload.Ready(m),
	}, true
}

// entry is the cached data of one app. Its fields may be read once ready is closed.
type entry struct {
	ready   chan struct{}
	at      time.Time // when the lookup ended; zero while it is in progress
	app     bourse.App
	known   bool
	records []record
	err     error
}

// Limits of the directory.
const (
	entryLife  = time.Second
	maxEntries = 1024
)

// directory caches the results of Names for a short time, so that many DNS queries can share one
// lookup. DNS queries that arrive during a lookup wait for its result.
type directory struct {
	names  Names
	region bourse.Region

	mu      sync.Mutex
	entries map[bourse.AppName]*entry
	apps    []bourse.App
	appsAt  time.Time
}

// lookup returns an app's entry. If another lookup of the app is in progress, lookup waits for its
// result.
func (d *directory) lookup(ctx context.Context, name bourse.AppName) (*entry, error) {
	d.mu.Lock()
	e := d.entries[name]
	if e == nil || !e.at.IsZero() && time.Since(e.at) > entryLife {
		d.trim()
		e = &entry{ready: make(chan struct{})}
		if d.entries == nil {
			d.entries = make(map[bourse.AppName]*entry)
		}
		d.entries[name] = e
		d.mu.Unlock()
		d.read(name, e)
	} else {
		d.mu.Unlock()
	}
	select {
	case <-e.ready:
		return e, e.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// read reads an app's machines, and completes the entry e for all callers that wait for it.
func (d *directory) read(name bourse.AppName, e *entry) {
	e.app, e.known, e.err = d.names.App(name)
	if e.err == nil && e.known {
		var machines []bourse.Machine
		machines, e.err = d.names.Machines(&e.app)
		network := e.app.PrivateNetwork()
		for i := range machines {
			if r, ok := recordOf(&machines[i], network); ok {
				e.records = append(e.records, r)
			}
		}
		// Shuffle the machines, so that each of them may come first.
		rand.Shuffle(len(e.records), func(i, j int) { e.records[i], e.records[j] = e.records[j], e.records[i] })
	}
	close(e.ready)
	d.mu.Lock()
	defer d.mu.Unlock()
	e.at = time.Now()
	if e.err != nil && d.entries[name] == e {
		delete(d.entries, name) // the next DNS query repeats the lookup
	}
}

// trim does nothing unless the directory is full. It then removes all expired entries. If that is
// not enough, it also removes other entries, except those that are being read, until fewer than
// half of maxEntries remain.
func (d *directory) trim() {
	if len(d.entries) < maxEntries {
		return
	}
	for name, e := range d.entries {
		if !e.at.IsZero() && time.Since(e.at) > entryLife {
			delete(d.entries, name)
		}
	}
	if len(d.entries) < maxEntries {
		return
	}
	for name, e := range d.entries {
		if len(d.entries) < maxEntries/2 {
			return
		}
		if !e.at.IsZero() {
			delete(d.entries, name)
		}
	}
}

// list returns the names of the apps in a private network.
func (d *directory) list(network string) ([]bourse.AppName, error) {
	d.mu.Lock()
	apps, at := d.apps, d.appsAt
	d.mu.Unlock()
	if time.Since(at) > entryLife {
		var err error
		if apps, err = d.names.Apps(); err != nil {
			return nil, err
		}
		d.mu.Lock()
		d.apps, d.appsAt = apps, time.Now()
		d.mu.Unlock()
	}
	var names []bourse.AppName
	for i := range apps {
		if apps[i].DeletedAt == nil && apps[i].PrivateNetwork() == network {
			names = append(names, apps[i].Name)
		}
	}
	return names, nil
}
