package gossip

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// Source is what a Directory asks of the replication: how much its view is
// worth. A replication.Replicator is one.
type Source interface {
	// Known returns a channel that is closed once the view has what the others
	// know.
	Known() <-chan struct{}
	// InSync reports whether that is so of the view's present file.
	InSync() bool
}

// maxSeen bounds how many workers are remembered that have no row in the view.
const maxSeen = 1 << 14

// absentees finds out which workers are absent: those that the view knows,
// or that were here once, and that are no members now.
type absentees struct {
	source Source
	known  chan struct{} // closed once the directory knows all workers
	limit  time.Duration // how long one may be absent; 0: bourse.LostAfter

	mu    sync.Mutex
	since time.Time // when known was closed: who is absent then was so before
	seen  map[bourse.WorkerID]*seen
}

// seen is a worker that was a member in this life of ours.
type seen struct {
	member bourse.Member
	gone   time.Time // when it was first missing; zero: it is here
}

func (a *absentees) init() {
	a.known = make(chan struct{})
	w := make(whole)
	close(w)
	a.source = w
	a.seen = map[bourse.WorkerID]*seen{}
}

// settle notes that the directory has what the view has, which is all.
func (a *absentees) settle(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since.IsZero() {
		a.since = now
		close(a.known)
	}
}

// of returns the workers that are absent while these are here, sorted by id.
func (a *absentees) of(here []bourse.Member, h *hints, now time.Time) []bourse.Absence {
	a.mu.Lock()
	defer a.mu.Unlock()
	present := make(map[bourse.WorkerID]bool, len(here))
	for _, m := range here {
		present[m.ID] = true
		if s := a.seen[m.ID]; s != nil {
			s.member, s.gone = m, time.Time{}
		} else if len(a.seen) < maxSeen {
			a.seen[m.ID] = &seen{member: m}
		}
	}
	var out []bourse.Absence
	for id, w := range h.forgotten {
		if !present[id] {
			delete(a.seen, id)
			m := bourse.Member{ID: id, Role: bourse.RoleWorker, Region: w.Region, Tag: w.Tag}
			out = append(out, bourse.Absence{Member: m, Since: w.At, Forgotten: true})
		}
	}
	for id, s := range a.seen {
		if present[id] {
			continue
		}
		if s.gone.IsZero() {
			s.gone = now
		}
		x := bourse.Absence{Member: h.added(s.member), Since: s.gone, LostAfter: a.limit}
		if _, ok := h.byID[id]; !ok && x.Lost(now) {
			delete(a.seen, id)
			continue
		}
		out = append(out, x)
	}
	for id, hint := range h.byID {
		if a.seen[id] == nil && !present[id] {
			m := bourse.Member{ID: id, Role: bourse.RoleWorker, Region: hint.Region, Tag: hint.Tag, Leaving: hint.Leaving}
			out = append(out, bourse.Absence{Member: m, Since: a.lastHeard(hint.HeardAt, now), LostAfter: a.limit})
		}
	}
	slices.SortFunc(out, func(x, y bourse.Absence) int { return strings.Compare(string(x.ID), string(y.ID)) })
	return out
}

// lastHeard is since when a worker is absent that was never a member in this
// life of ours: since we know that it is none, or since it was last heard from
// if that is later.
func (a *absentees) lastHeard(heard, now time.Time) time.Time {
	if a.since.IsZero() {
		return now
	}
	if heard.After(a.since) {
		return heard
	}
	return a.since
}

// Source has the directory know how much its view is worth. It is called
// before Run; without it the view is taken to have all.
func (d *Directory) Source(s Source) { d.absent.source = s }

// LostAfter sets how long a worker may be absent before it counts as lost for
// good; 0: [bourse.LostAfter]. It is called before Run.
func (d *Directory) LostAfter(limit time.Duration) { d.absent.limit = limit }

// Known returns a channel that is closed once every worker of the cluster is
// known here, as a member or as absent.
func (d *Directory) Known() <-chan struct{} { return d.absent.known }

// Knows reports whether Known is closed.
func (d *Directory) Knows() bool { return isClosed(d.absent.known) }

// whole is the source of a directory that was given none.
type whole chan struct{}

// Known is closed.
func (w whole) Known() <-chan struct{} { return w }

// InSync is true.
func (whole) InSync() bool { return true }
