package gossip

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// Directory answers what a broker and its exchange ask of the cluster: which
// workers are there, from the membership, and what is free there, from the view. With an
// empty view nothing is known to be free, and all else works. Its methods are
// safe for concurrent use; readers share what was put together once.
//
// A server that is in several groups, one for each network that its cluster is
// on, has one directory of all; a worker that is in several is known by the first.
type Directory struct {
	groups  []*Members
	view    *view.View
	unread  func(err error) // says that the view cannot be read, not too often
	hints   atomic.Pointer[hints]
	current atomic.Pointer[directory]
	absent  absentees
}

// hints is what the view says of workers. It is never changed.
type hints struct {
	byID      map[bourse.WorkerID]inventory.WorkerHint
	forgotten map[bourse.WorkerID]inventory.ForgottenWorker
}

// directory is a snapshot of the members with the view's hints in it. It is
// never changed.
type directory struct {
	snapshots []*snapshot
	hints     *hints
	workers   []bourse.Member // by id
	regions   []bourse.Region // sorted
	byRegion  map[bourse.Region][]bourse.Member
	absent    []bourse.Absence // by id
}

// NewDirectory makes one of a group, and of more if there are. It knows what
// is free once Run runs.
func NewDirectory(v *view.View, group *Members, more ...*Members) *Directory {
	d := &Directory{groups: append([]*Members{group}, more...), view: v}
	d.unread = func(err error) {
		if group.quiet.Due("hints") {
			group.config.Log.Warn("what is free cannot be read from the view", slog.Any("err", err))
		}
	}
	d.hints.Store(&hints{})
	d.absent.init()
	return d
}

// hintsEvery is how often the view is asked at most: free amounts change all
// the time somewhere.
const hintsEvery = 100 * time.Millisecond

// hintsTimeout bounds the asking.
const hintsTimeout = 5 * time.Second

// Run keeps what is free up to date until ctx ends.
func (d *Directory) Run(ctx context.Context) error {
	watcher := d.view.Watch(wire.TableWorkers, wire.TableForgotten)
	defer watcher.Stop()
	known := d.absent.source.Known()
	for {
		all := isClosed(known) // before the view is read
		d.refresh(ctx)
		if all && ctx.Err() == nil {
			d.absent.settle(time.Now())
			known = nil
		}
		rest := time.NewTimer(hintsEvery)
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

// refresh asks the view. What cannot be read stays as it was.
func (d *Directory) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, hintsTimeout)
	defer cancel()
	list, err := view.Ask(ctx, d.view, inventory.Workers())
	var forgotten []inventory.ForgottenWorker
	if err == nil {
		forgotten, err = view.Ask(ctx, d.view, inventory.Forgotten())
	}
	if err != nil {
		if ctx.Err() == nil {
			d.unread(err)
		}
		return
	}
	byID := make(map[bourse.WorkerID]inventory.WorkerHint, len(list))
	for _, h := range list {
		if h.Free.Validate() != nil {
			h.Free = nil // no worker could have said so
		}
		byID[h.ID] = h
	}
	if !d.absent.source.InSync() { // the view's file is a new one, and knows less than we do
		for id, h := range d.hints.Load().byID {
			if _, ok := byID[id]; !ok {
				byID[id] = h
			}
		}
	}
	gone := make(map[bourse.WorkerID]inventory.ForgottenWorker, len(forgotten))
	for _, w := range forgotten {
		gone[w.ID] = w
		delete(byID, w.ID)
	}
	d.hints.Store(&hints{byID, gone})
}

// Regions returns every region that has a worker, sorted, also those of which all
// workers are away: an order for one is refused, not misunderstood. The slice
// is the caller's.
func (d *Directory) Regions() []bourse.Region { return slices.Clone(d.get().regions) }

// Candidates returns the workers of a region that take orders, with what is
// free there as far as it is known. The slice is the caller's; the amounts in
// it are shared, here and below, and must not be changed.
func (d *Directory) Candidates(region bourse.Region) []bourse.Member {
	return slices.Clone(d.get().byRegion[region])
}

// Workers returns every worker, sorted by id, also those that take no orders.
// The slice is the caller's.
func (d *Directory) Workers() []bourse.Member { return slices.Clone(d.get().workers) }

// All returns every worker as one moment has it: the members, and those that belong
// to the cluster and are none, each by id. The slices are shared and must not be changed.
func (d *Directory) All() (here []bourse.Member, away []bourse.Absence) {
	now := d.get()
	return now.workers, now.absent
}

// ByTag returns the worker whose machines' ids begin with this tag.
func (d *Directory) ByTag(tag bourse.WorkerTag) (bourse.Member, bool) {
	for _, group := range d.groups {
		if m, ok := group.ByTag(tag); ok {
			return d.hints.Load().added(m), true
		}
	}
	return bourse.Member{}, false
}

// get puts the present members and hints together, unless that was done.
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
	c.absent = d.absent.of(c.workers, h, time.Now())
	d.current.Store(c) // of two at a time either will do
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

// join makes a directory of the membership and the view's hints.
func join(groups []*snapshot, h *hints) *directory {
	d := &directory{snapshots: groups, hints: h, byRegion: map[bourse.Region][]bourse.Member{}}
	for i, s := range groups {
		d.regions = append(d.regions, s.regions...)
		for _, m := range s.members {
			if m.Role == bourse.RoleWorker && !slices.ContainsFunc(groups[:i], func(before *snapshot) bool { _, ok := before.byID[m.ID]; return ok }) {
				d.workers = append(d.workers, h.added(m))
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

// added returns a member with what the view says of it. A worker that leaves
// says so in both places; either is enough.
func (h *hints) added(m bourse.Member) bourse.Member {
	hint, ok := h.byID[m.ID]
	if !ok {
		return m
	}
	m.Free = hint.Free
	m.Leaving = m.Leaving || hint.Leaving
	return m
}
