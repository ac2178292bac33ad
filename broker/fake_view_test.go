package broker_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/lookup"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
	"github.com/bourse-dev/bourse/view/inventory"
)

// fakeView is an in-memory view. Until it is frozen, it immediately reflects every change on the workers, even on
// unresponsive ones.
type fakeView struct {
	c *cluster

	mu       sync.Mutex
	frozen   bool
	unsynced bool
	public   bool   // the view contains only the public parts of configs, like a real one
	err      error  // if set, every read returns it
	putErr   error  // if set, every write returns it
	onPut    func() // called before a write
	rows     map[bourse.MachineID]inventory.Listed
	volumes  map[bourse.VolumeID]inventory.ListedVolume
	apps     map[bourse.AppName]bourse.App
	status   map[bourse.WorkerID]machinesapi.HostStatus
	heard    time.Time
	appReads int
	away     []inventory.UnreachableWorker
	members  []inventory.CertifiedMember
	removed  []inventory.RemovedMember
	releases map[release.ID]release.Release
	policies []inventory.Policy
}

func newFakeView(c *cluster) *fakeView {
	return &fakeView{
		c: c, rows: map[bourse.MachineID]inventory.Listed{}, volumes: map[bourse.VolumeID]inventory.ListedVolume{}, apps: map[bourse.AppName]bourse.App{}, releases: map[release.ID]release.Release{},
		status: map[bourse.WorkerID]machinesapi.HostStatus{}, heard: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC),
	}
}

var (
	_ lookup.View       = (*fakeView)(nil)
	_ lookup.PolicyView = (*fakeView)(nil)
)

// freeze stops the view from reflecting further changes on the workers.
func (v *fakeView) freeze() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.copy()
	v.frozen = true
}

// catchUp updates a frozen view to the workers' current state.
func (v *fakeView) catchUp() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.copy()
}

// wipe empties the view permanently.
func (v *fakeView) wipe() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.frozen = true
	clear(v.rows)
	clear(v.volumes)
	clear(v.apps)
}

// set calls change with the view's lock held.
func (v *fakeView) set(change func(*fakeView)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change(v)
}

// lose makes a worker leave the cluster, so that its machines are only in the view.
func (s *setup) lose(id bourse.WorkerID) {
	s.view.freeze()
	s.view.set(func(v *fakeView) { v.status[id] = machinesapi.HostUnreachable })
	s.members = slices.DeleteFunc(slices.Clone(s.members), func(m bourse.Member) bool { return m.ID == id })
}

// copy copies the workers' state into the view. The caller holds the lock.
func (v *fakeView) copy() {
	clear(v.rows)
	clear(v.volumes)
	for _, w := range v.c.workers {
		w.mu.Lock()
		for id, m := range w.machines {
			if m.State != bourse.StateDestroyed {
				row := inventory.Listed{Machine: *m}
				if v.public {
					row.Config = row.Config.Public()
				}
				row.LastEvents = row.LastEvents[:min(4, len(row.LastEvents))]
				if m.Lease != nil {
					lease := *m.Lease
					lease.Nonce = ""
					row.Lease = &lease
				}
				v.rows[id] = row
			}
		}
		for id, vol := range w.volumes {
			if vol.State != bourse.VolumeDestroyed {
				v.volumes[id] = inventory.ListedVolume{Volume: *vol}
			}
		}
		w.mu.Unlock()
	}
}

// read prepares a read of the view: it updates the view unless it is frozen, and returns the error
// that the test has set.
func (v *fakeView) read() error {
	if !v.frozen {
		v.copy()
	}
	return v.err
}

func (v *fakeView) show(l inventory.Listed) inventory.Listed {
	l.HostStatus, l.HeardAt = machinesapi.HostOK, v.heard
	if s, ok := v.status[l.Worker]; ok {
		l.HostStatus = s
	}
	return l
}

func (v *fakeView) InSync() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.unsynced
}

func (v *fakeView) Machines(_ context.Context, f inventory.Filter) ([]inventory.Listed, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.read(); err != nil {
		return nil, err
	}
	var out []inventory.Listed
	for _, l := range v.rows {
		if (f.App == "" || l.App == f.App) && (f.Name == "" || l.Name == f.Name) {
			out = append(out, v.show(l))
		}
	}
	return out, nil
}

func (v *fakeView) Machine(_ context.Context, id bourse.MachineID) (*inventory.Listed, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	err := v.read()
	l, ok := v.rows[id]
	if err != nil || !ok {
		return nil, err
	}
	l = v.show(l)
	return &l, nil
}

func (v *fakeView) CountMachines(ctx context.Context) (map[bourse.AppRef]int, error) {
	rows, err := v.Machines(ctx, inventory.Filter{})
	counts := map[bourse.AppRef]int{}
	for i := range rows {
		counts[bourse.AppRef{Name: rows[i].App, ID: rows[i].AppID}]++
	}
	return counts, err
}

func (v *fakeView) UnreachableWorkers(context.Context) ([]inventory.UnreachableWorker, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.away, v.err
}

func (v *fakeView) Certified(context.Context) ([]inventory.CertifiedMember, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(v.members), func(m inventory.CertifiedMember) bool {
		return slices.ContainsFunc(v.removed, func(r inventory.RemovedMember) bool { return r.ID == m.ID && !m.IssuedAt.After(r.At) })
	}), v.err
}

func (v *fakeView) Removed(context.Context) ([]inventory.RemovedMember, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.removed), nil
}

func (v *fakeView) RemoveMember(_ context.Context, worker bourse.Member) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.err == nil {
		v.removed = append(v.removed, inventory.RemovedMember{ID: worker.ID, Role: worker.Role, Region: worker.Region, Tag: worker.Tag, At: noon})
	}
	return v.err
}

func (v *fakeView) Policies(context.Context) ([]inventory.Policy, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.policies), v.err
}

func (v *fakeView) PutPolicy(ctx context.Context, p *inventory.Policy) error {
	if err := v.DropPolicy(ctx, p); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.policies = append(v.policies, *p)
	return nil
}

func (v *fakeView) DropPolicy(_ context.Context, p *inventory.Policy) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.putErr != nil {
		return v.putErr
	}
	v.policies = slices.DeleteFunc(v.policies, func(old inventory.Policy) bool { return old.Region == p.Region && old.Shadow == p.Shadow })
	return nil
}

func (v *fakeView) Apps(context.Context) ([]bourse.App, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []bourse.App
	for _, a := range v.apps {
		out = append(out, a)
	}
	return out, v.err
}

func (v *fakeView) App(_ context.Context, name bourse.AppName) (*bourse.App, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.appReads++
	app, ok := v.apps[name]
	if v.err != nil || !ok {
		return nil, v.err
	}
	return &app, nil
}

func (v *fakeView) PutApp(_ context.Context, app bourse.App) (bourse.App, error) {
	v.mu.Lock()
	err, hook := v.putErr, v.onPut
	v.mu.Unlock()
	if hook != nil {
		hook()
	}
	if err != nil {
		return bourse.App{}, err
	}
	return v.put(app), nil
}

func (v *fakeView) put(app bourse.App) bourse.App {
	v.mu.Lock()
	defer v.mu.Unlock()
	if old, ok := v.apps[app.Name]; ok {
		app = old.Merge(app)
	}
	v.apps[app.Name] = app
	return app
}

func (v *fakeView) Releases(_ context.Context, app string) (out []release.Release, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range v.releases {
		if r.AppID == app {
			out = append(out, r)
		}
	}
	return out, v.err
}

func (v *fakeView) Deployed(context.Context) (out []string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range v.releases {
		out = append(out, r.AppID)
	}
	return out, v.err
}

func (v *fakeView) PutRelease(_ context.Context, r *release.Release) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.putErr == nil {
		v.releases[r.ID] = *r
	}
	return v.putErr
}

func (v *fakeView) DropReleases(_ context.Context, ids []release.ID) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, id := range ids {
		delete(v.releases, id)
	}
	return v.putErr
}
