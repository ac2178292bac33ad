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

// Names is the source of names: the worker itself, whose machines are all that
// a machine of it can reach. When it returns an error, the resolver answers
// SERVFAIL; nothing is made up.
type Names interface {
	// App returns an app, false when there is none of this name (any more).
	App(name bourse.AppName) (bourse.App, bool, error)
	// Machines returns the worker's machines of an app, in any state.
	Machines(app *bourse.App) ([]bourse.Machine, error)
	// Apps returns all apps; those that were deleted have DeletedAt.
	Apps() ([]bourse.App, error)
}

// record is what the resolver keeps of a machine.
type record struct {
	id       bourse.MachineID
	name     string
	region   bourse.Region
	address  netip.Addr
	metadata map[string]string
	listed   bool // it runs, and has not asked to be left out
	ready    bool // and its readiness checks pass
}

// processGroup is the metadata that names a machine's process group.
const processGroup = "fly_process_group"

// recordOf is false for a machine that has no name in this network: it uses
// the host's, or its row claims an address that is not the network's.
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

// entry is one app as it was read at a time. Its fields may be read once
// ready is closed.
type entry struct {
	ready   chan struct{}
	at      time.Time // when reading ended; zero while it goes on
	app     bourse.App
	known   bool
	records []record
	err     error
}

// Bounds of the directory.
const (
	entryLife   = time.Second
	mostEntries = 1024
)

// directory caches for a moment what Names returned, so that a thousand
// questions are one query, and one query serves all that wait.
type directory struct {
	names Names

	mu      sync.Mutex
	entries map[bourse.AppName]*entry
	apps    []bourse.App
	appsAt  time.Time
}

// lookup returns an app's records. If a query for them is in progress, it waits for that.
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

// read queries for all that wait.
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
		// Among equals none is always the first.
		rand.Shuffle(len(e.records), func(i, j int) { e.records[i], e.records[j] = e.records[j], e.records[i] })
	}
	close(e.ready)
	d.mu.Lock()
	defer d.mu.Unlock()
	e.at = time.Now()
	if e.err != nil && d.entries[name] == e {
		delete(d.entries, name) // the next question asks again
	}
}

// trim keeps the directory small: what is old goes, and if that is not enough
// anything that has been read, of half of the entries.
func (d *directory) trim() {
	if len(d.entries) < mostEntries {
		return
	}
	for name, e := range d.entries {
		if !e.at.IsZero() && time.Since(e.at) > entryLife {
			delete(d.entries, name)
		}
	}
	if len(d.entries) < mostEntries {
		return
	}
	for name, e := range d.entries {
		if len(d.entries) < mostEntries/2 {
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
