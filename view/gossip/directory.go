package gossip

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// Directory lists the cluster's workers for a broker and its exchange. The workers come from the
// membership, and their free capacity comes from the view. If the view is empty, the members are
// still listed, but their free capacity is unknown. The methods are safe for concurrent use. All of
// them read the same cached snapshot.
//
// If a server is in several groups, one for each network of its cluster, it has one Directory for
// all of them. If a worker is in several groups, the Directory uses the entry from the first of
// these groups.
type Directory struct {
	groups       []*Members
	view         *view.View
	logReadError func(err error) // logs, at a limited rate, that the view cannot be read
	hints        atomic.Pointer[hints]
	current      atomic.Pointer[directory]
	absent       absentees
}

// hints contains data about servers that was read from the view. It is immutable.
type hints struct {
	byID      map[bourse.WorkerID]inventory.WorkerHint
	removed   map[bourse.WorkerID]inventory.RemovedMember
	certified map[bourse.WorkerID]inventory.CertifiedMember
}

// directory is a snapshot of the members, combined with the hints from the view. It is immutable.
type directory struct {
	snapshots []*snapshot
	hints     *hints
	workers   []bourse.Member // sorted by id
	regions   []bourse.Region // sorted
	byRegion  map[bourse.Region][]bourse.Member
	absent    []bourse.Absence // sorted by id
}

// NewDirectory returns a Directory for one or more groups. It knows the workers' free capacity only
// while Run is running.
func NewDirectory(v *view.View, group *Members, more ...*Members) *Directory {
	d := &Directory{groups: append([]*Members{group}, more...), view: v}
	d.logReadError = func(err error) {
		if group.quiet.Due("hints") {
			group.config.Log.Warn("read free capacity from the view failed", slog.Any("err", err))
		}
	}
	d.hints.Store(&hints{})
	d.absent.init()
	return d
}

// hintsInterval is the minimum time between two reads of the view. Without it, the Directory would
// constantly read the view, because free capacity changes all the time.
const hintsInterval = 100 * time.Millisecond

// hintsTimeout is the time limit for one read of the view.
const hintsTimeout = 5 * time.Second

// Run reads the view whenever it changes, to keep the free capacity up to date, until ctx is done.
// It then returns nil.
func (d *Directory) Run(ctx context.Context) error {
	watcher := d.view.Watch(wire.TableWorkers, wire.TableRemoved, wire.TableCertified)
	defer watcher.Stop()
	known := d.absent.source.Known()
	for {
		all := isClosed(known) // check this before reading the view: if all is true, the view that is read is complete
		d.refresh(ctx)
		if all && ctx.Err() == nil {
			d.absent.settle(time.Now())
			known = nil
		}
		rest := time.NewTimer(hintsInterval)
		select {
		case <-ctx.Done():
			rest.Stop()
			return nil
		case <-rest.C:
		case <-known:
			rest.Stop()
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-watcher.C:
		case <-known:
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// refresh reads the view and replaces the hints. If that fails, the hints remain unchanged.
func (d *Directory) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, hintsTimeout)
	defer cancel()
	list, err := view.Query(ctx, d.view, inventory.Workers())
	var removed []inventory.RemovedMember
	if err == nil {
		removed, err = view.Query(ctx, d.view, inventory.Removed())
	}
	var certificates []inventory.CertifiedMember
	if err == nil {
		certificates, err = view.Query(ctx, d.view, inventory.Certified())
	}
	if err != nil {
		if ctx.Err() == nil {
			d.logReadError(err)
		}
		return
	}
	byID := make(map[bourse.WorkerID]inventory.WorkerHint, len(list))
	for _, h := range list {
		if h.Free.Validate() != nil {
			h.Free = nil // drop an invalid value, which no correct worker publishes
		}
		byID[h.ID] = h
	}
	certified := make(map[bourse.WorkerID]inventory.CertifiedMember, len(certificates))
	if !d.absent.source.InSync() { // the view's file is new, and does not yet contain all data that is in the old hints
		maps.Copy(certified, d.hints.Load().certified)
		for id, h := range d.hints.Load().byID {
			if _, ok := byID[id]; !ok {
				byID[id] = h
			}
		}
	}
	gone := make(map[bourse.WorkerID]inventory.RemovedMember, len(removed))
	for _, w := range removed {
		if !w.Returned && w.Role == bourse.RoleWorker {
			gone[w.ID] = w
			delete(byID, w.ID)
		}
	}
	for _, m := range certificates {
		certified[m.ID] = m
	}
	d.hints.Store(&hints{byID, gone, certified})
}

// Certified returns the brokers and proxies that have valid certificates, sorted by id, even if
// they are not members now. It omits servers that were removed, unless they have joined again. In a
// cluster without certificates, the list is empty.
func (d *Directory) Certified() []bourse.Member {
	var out []bourse.Member
	now := time.Now()
	for id, m := range d.hints.Load().certified {
		if m.ExpiresAt.After(now) {
			out = append(out, bourse.Member{ID: id, Role: m.Role, Region: m.Region})
		}
	}
	slices.SortFunc(out, func(a, b bourse.Member) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return out
}

// Regions returns every region that has a worker, sorted, even if all workers in the region are
// absent. An order for such a region is valid, although it cannot be filled. The caller owns the
// slice.
func (d *Directory) Regions() []bourse.Region { return slices.Clone(d.get().regions) }

// Candidates returns a region's workers that accept orders, with their free capacity if it is
// known. The caller owns the slice. The amounts in it are shared and must not be changed. The same
// applies to the amounts that the following methods return.
func (d *Directory) Candidates(region bourse.Region) []bourse.Member {
	return slices.Clone(d.get().byRegion[region])
}

// Workers returns every worker, sorted by id, including those that do not accept orders. The caller owns the slice.
func (d *Directory) Workers() []bourse.Member { return slices.Clone(d.get().workers) }

// All returns the workers that are members and the workers that are absent, as of the same moment.
// Both lists are sorted by id. The slices are shared and must not be changed.
func (d *Directory) All() (here []bourse.Member, away []bourse.Absence) {
	now := d.get()
	return now.workers, now.absent
}

// ByTag returns the worker with this tag, and whether such a worker is a member. The ids of a
// worker's machines begin with its tag.
func (d *Directory) ByTag(tag bourse.WorkerTag) (bourse.Member, bool) {
	for _, group := range d.groups {
		if m, ok := group.ByTag(tag); ok {
			return d.hints.Load().addTo(m), true
		}
	}
	return bourse.Member{}, false
}

// get returns the cached directory if it is current. Otherwise, it builds a new one from the
// current members and hints.
func (d *Directory) get() *directory {
	h, c := d.hints.Load(), d.current.Load()
	if c != nil && c.hints == h && d.unchanged(c.snapshots) {
		return c
	}
	snapshots := make([]*snapshot, len(d.groups))
	for i, group := range d.groups {
		snapshots[i] = group.snapshot()
	}
	c = join(snapshots, h)
	c.absent = d.absent.list(c.workers, snapshots, h, time.Now())
	d.current.Store(c) // if two calls run concurrently, either result may be stored
	return c
}

func (d *Directory) unchanged(snapshots []*snapshot) bool {
	for i, group := range d.groups {
		if group.snapshot() != snapshots[i] {
			return false
		}
	}
	return true
}

// join combines the members of all groups with the view's hints.
func join(groups []*snapshot, h *hints) *directory {
	d := &directory{snapshots: groups, hints: h, byRegion: map[bourse.Region][]bourse.Member{}}
	for i, s := range groups {
		d.regions = append(d.regions, s.regions...)
		for _, m := range s.members {
			if m.Role == bourse.RoleWorker && !slices.ContainsFunc(groups[:i], func(before *snapshot) bool { _, ok := before.byID[m.ID]; return ok }) {
				d.workers = append(d.workers, h.addTo(m))
			}
		}
	}
	if len(groups) > 1 {
		slices.SortFunc(d.workers, func(a, b bourse.Member) int { return strings.Compare(string(a.ID), string(b.ID)) })
	}
	for _, m := range d.workers {
		if !m.Leaving {
			d.byRegion[m.Region] = append(d.byRegion[m.Region], m)
		}
	}
	for _, hint := range h.byID {
		if hint.Region.Validate() == nil {
			d.regions = append(d.regions, hint.Region)
		}
	}
	slices.Sort(d.regions)
	d.regions = slices.Compact(d.regions)
	return d
}

// addTo returns m with the data from the view added. The worker counts as leaving if either m or
// the view marks it as leaving.
func (h *hints) addTo(m bourse.Member) bourse.Member {
	hint, ok := h.byID[m.ID]
	if !ok {
		return m
	}
	m.Free = hint.Free
	m.Leaving = m.Leaving || hint.Leaving
	return m
}
