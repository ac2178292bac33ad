package gossip

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
)

// Directory answers what a broker and its exchange ask of the cluster: who is
// there, from the membership, and what is free there, from the view. With an
// empty view nothing is known to be free, and all else works. Its methods are
// safe for concurrent use; readers share what was put together once.
type Directory struct {
	members *Members
	view    *view.View
	hints   atomic.Pointer[hints]
	current atomic.Pointer[directory]
}

// hints is what the view says of workers. It is never changed.
type hints struct {
	byID map[bourse.WorkerID]view.WorkerHint
}

// directory is a snapshot of the members with the view's hints in it. It is
// never changed.
type directory struct {
	snapshot *snapshot
	hints    *hints
	workers  []bourse.Member // by id
	regions  []bourse.Region // sorted
	byRegion map[bourse.Region][]bourse.Member
}

// NewDirectory makes one. It knows what is free once Run runs.
func NewDirectory(members *Members, v *view.View) *Directory {
	d := &Directory{members: members, view: v}
	d.hints.Store(&hints{})
	return d
}

// hintsEvery is how often the view is asked at most: free amounts change all
// the time somewhere.
const hintsEvery = 100 * time.Millisecond

// hintsTimeout bounds the asking.
const hintsTimeout = 5 * time.Second

// Run keeps what is free up to date until ctx ends.
func (d *Directory) Run(ctx context.Context) error {
	watcher := d.view.Watch(view.TableWorkers)
	defer watcher.Stop()
	for {
		d.refresh(ctx)
		rest := time.NewTimer(hintsEvery)
		select {
		case <-ctx.Done():
			rest.Stop()
			return nil
		case <-rest.C:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-watcher.C:
		}
	}
}

// refresh asks the view. What cannot be read stays as it was.
func (d *Directory) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, hintsTimeout)
	defer cancel()
	list, err := d.view.Workers(ctx)
	if err != nil {
		if d.members.quiet.due("hints", time.Now()) && ctx.Err() == nil {
			d.members.config.Log.Warn("what is free cannot be read from the view", slog.Any("err", err))
		}
		return
	}
	byID := make(map[bourse.WorkerID]view.WorkerHint, len(list))
	for _, h := range list {
		if h.Free.Validate() != nil {
			h.Free = nil // no worker could have said so
		}
		byID[h.ID] = h
	}
	d.hints.Store(&hints{byID})
}

// Regions gives every region that has a worker, sorted, also those of which all
// workers are away: an order for one is refused, not misunderstood. The slice
// is the caller's.
func (d *Directory) Regions() []bourse.Region { return slices.Clone(d.get().regions) }

// Candidates gives the workers of a region that take orders, with what is
// free there as far as it is known. The slice is the caller's; the amounts in
// it are shared, here and below, and must not be changed.
func (d *Directory) Candidates(region bourse.Region) []bourse.Member {
	return slices.Clone(d.get().byRegion[region])
}

// Workers gives every worker, sorted by id, also those that take no orders.
// The slice is the caller's.
func (d *Directory) Workers() []bourse.Member { return slices.Clone(d.get().workers) }

// Worker gives the worker with this id.
func (d *Directory) Worker(id bourse.WorkerID) (bourse.Member, bool) {
	m, ok := d.members.Worker(id)
	if !ok {
		return m, false
	}
	return d.hints.Load().added(m), true
}

// ByTag gives the worker whose machines' ids begin with this tag.
func (d *Directory) ByTag(tag bourse.WorkerTag) (bourse.Member, bool) {
	m, ok := d.members.ByTag(tag)
	if !ok {
		return m, false
	}
	return d.hints.Load().added(m), true
}

// get puts the present members and hints together, unless that was done.
func (d *Directory) get() *directory {
	s, h := d.members.snapshot(), d.hints.Load()
	if c := d.current.Load(); c != nil && c.snapshot == s && c.hints == h {
		return c
	}
	c := join(s, h)
	d.current.Store(c) // of two at a time either will do
	return c
}

// join makes a directory of the membership and the view's hints.
func join(s *snapshot, h *hints) *directory {
	d := &directory{snapshot: s, hints: h, byRegion: make(map[bourse.Region][]bourse.Member, len(s.regions))}
	for _, m := range s.members {
		if m.Role != bourse.RoleWorker {
			continue
		}
		m = h.added(m)
		d.workers = append(d.workers, m)
		if !m.Leaving {
			d.byRegion[m.Region] = append(d.byRegion[m.Region], m)
		}
	}
	d.regions = slices.Clone(s.regions)
	for _, hint := range h.byID {
		if hint.Region.Validate() == nil && !slices.Contains(d.regions, hint.Region) {
			d.regions = append(d.regions, hint.Region)
		}
	}
	slices.Sort(d.regions)
	return d
}

// added gives a member with what the view says of it. A worker that leaves
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
