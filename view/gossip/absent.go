package gossip

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// Source tells a Directory whether its view is complete. A replication.Replicator implements it.
type Source interface {
	// Known returns a channel that is closed once the view contains all data that the other
	// members have.
	Known() <-chan struct{}
	// InSync reports whether the view's current file contains all data that the other members
	// have.
	InSync() bool
}

// maxSeen is the maximum number of current and former members in absentees.seen.
const maxSeen = 1 << 14

// absentees determines which workers are absent. A worker is absent if it is not a member now, but is in the view or
// has been a member since this process started.
type absentees struct {
	source Source
	known  chan struct{} // closed once the directory knows all workers
	limit  time.Duration // how long a worker may be absent before it counts as lost; 0 means bourse.LostAfter

	mu    sync.Mutex
	since time.Time // time when known was closed; a worker that was absent at that time may have been absent for longer
	seen  map[bourse.WorkerID]*seen
}

// seen describes a worker that has been a member since this process started.
type seen struct {
	member bourse.Member
	gone   time.Time // time when this process first found that the worker was missing; zero if it is a member now
}

func (a *absentees) init() {
	a.known = make(chan struct{})
	w := make(alwaysComplete)
	close(w)
	a.source = w
	a.seen = map[bourse.WorkerID]*seen{}
}

// settle records that the directory has read a complete view, and closes known.
func (a *absentees) settle(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since.IsZero() {
		a.since = now
		close(a.known)
	}
}

// list returns the absent workers, sorted by id. here contains the workers that are members now. groups contains the
// groups' current snapshots, which also list workers that announced that they were leaving and then stopped. list marks
// these workers as leaving, even if they did both between two calls of list.
func (a *absentees) list(here []bourse.Member, groups []*snapshot, h *hints, now time.Time) []bourse.Absence {
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
	for id, w := range h.removed {
		if !present[id] {
			delete(a.seen, id)
			m := bourse.Member{ID: id, Role: bourse.RoleWorker, Region: w.Region, Tag: w.Tag}
			out = append(out, bourse.Absence{Member: m, Since: w.At, Removed: true})
		}
	}
	for id, s := range a.seen {
		if present[id] {
			continue
		}
		if s.gone.IsZero() {
			s.gone = now
		}
		if slices.ContainsFunc(groups, func(g *snapshot) bool { return g.stopped[id] }) {
			s.member.Leaving = true
		}
		x := bourse.Absence{Member: h.addTo(s.member), Since: s.gone, LostAfter: a.limit}
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

// lastHeard returns the time from which the absence of a worker is counted if the worker has not been a member since
// this process started. This is the time when the worker was last heard from, or the time when this process first had a
// complete list of workers, whichever is later. If this process does not have a complete list yet, lastHeard returns
// now.
func (a *absentees) lastHeard(heard, now time.Time) time.Time {
	if a.since.IsZero() {
		return now
	}
	if heard.After(a.since) {
		return heard
	}
	return a.since
}

// Source sets the Source that reports whether the view is complete. Call it before Run. Without a
// Source, the view counts as complete.
func (d *Directory) Source(s Source) { d.absent.source = s }

// LostAfter sets how long a worker may be absent before it counts as permanently lost. 0 means [bourse.LostAfter].
// Call LostAfter before Run.
func (d *Directory) LostAfter(limit time.Duration) { d.absent.limit = limit }

// Known returns a channel that is closed once the directory knows every worker of the cluster, including
// those that are absent.
func (d *Directory) Known() <-chan struct{} { return d.absent.known }

// Knows reports whether the directory knows every worker of the cluster (see Known).
func (d *Directory) Knows() bool { return isClosed(d.absent.known) }

// alwaysComplete is the default Source of a Directory. It reports that the view is complete.
type alwaysComplete chan struct{}

// Known returns a closed channel.
func (w alwaysComplete) Known() <-chan struct{} { return w }

// InSync returns true.
func (alwaysComplete) InSync() bool { return true }
