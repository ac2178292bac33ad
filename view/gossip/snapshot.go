package gossip

import (
	"cmp"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// snapshot is the list of members at one point in time. It is immutable, so readers can share it.
type snapshot struct {
	members  []bourse.Member // one per id, sorted by id
	byID     map[bourse.WorkerID]int
	byTag    map[bourse.WorkerTag]int
	regions  []bourse.Region                   // regions with a worker, sorted
	byRegion map[bourse.Region][]bourse.Member // workers that accept orders
	stopped  map[bourse.WorkerID]bool          // workers that were leaving when they stopped being members
}

// build returns a snapshot of the given nodes. self is the name of this member, which is listed
// even if it is pending or does not have a tag yet.
func build(nodes map[string]node, self string) *snapshot {
	chosen := map[bourse.WorkerID]node{}
	for _, n := range nodes {
		if n.name != self && (!n.proven || n.pending || tagless(n.member)) {
			continue // skip a member that is not proven yet or has not settled its id and tag
		}
		if other, ok := chosen[n.member.ID]; !ok || isCurrentBoot(n, other, self) {
			chosen[n.member.ID] = n
		}
	}
	s := &snapshot{
		members:  make([]bourse.Member, 0, len(chosen)),
		byID:     make(map[bourse.WorkerID]int, len(chosen)),
		byTag:    make(map[bourse.WorkerTag]int, len(chosen)),
		byRegion: map[bourse.Region][]bourse.Member{},
	}
	sorted := make([]node, 0, len(chosen))
	for _, n := range chosen {
		sorted = append(sorted, n)
	}
	slices.SortFunc(sorted, func(x, y node) int { return cmp.Compare(x.member.ID, y.member.ID) })
	for i, n := range sorted {
		m := n.member
		s.members = append(s.members, m)
		s.byID[m.ID] = i
		if m.Role != bourse.RoleWorker {
			continue
		}
		if other, ok := s.byTag[m.Tag]; m.Tag != 0 && (!ok || ownsTagBefore(n, sorted[other])) {
			s.byTag[m.Tag] = i
		}
		if _, ok := s.byRegion[m.Region]; !ok {
			s.byRegion[m.Region] = nil
			s.regions = append(s.regions, m.Region)
		}
		if !m.Leaving {
			s.byRegion[m.Region] = append(s.byRegion[m.Region], m)
		}
	}
	slices.Sort(s.regions)
	return s
}

// ownsTagBefore reports whether n, rather than other, owns the tag that both have. A worker's id
// determines its preferred tags, in order (see [bourse.WorkerID.TagRank]). The owner is the worker
// that prefers the tag more or, if both prefer it equally, the worker that started first.
func ownsTagBefore(n, other node) bool {
	a, b := n.member.ID.TagRank(n.member.Tag), other.member.ID.TagRank(other.member.Tag)
	return cmp.Or(cmp.Compare(a, b), cmp.Compare(n.boot, other.boot)) < 0
}

// tagless reports whether m is a worker that has not chosen its tag yet. Such a worker does not
// receive orders, because its machines' ids could not identify it.
func tagless(m bourse.Member) bool { return m.Role == bourse.RoleWorker && m.Tag == 0 }

// isCurrentBoot reports which of two boots of the same server is the current one: n (true) or other
// (false). For this server, it is this process's own boot. For another server, it is the later boot,
// because a server starts only if its earlier boot does not answer.
func isCurrentBoot(n, other node, self string) bool {
	if n.name == self || other.name == self {
		return n.name == self
	}
	return n.boot > other.boot
}

// rival reports whether n is another member that has self's id and takes precedence over self. A
// settled member takes precedence over a pending one. If both are settled or both are pending, the
// earlier boot takes precedence.
func rival(self, n node) bool {
	if n.name == self.name || n.member.ID != self.member.ID {
		return false
	}
	if self.pending != n.pending {
		return self.pending
	}
	return strings.Compare(n.boot, self.boot) < 0
}

// sharesTag reports whether self and n are different workers with the same tag.
func sharesTag(self, n node) bool {
	return n.member.ID != self.member.ID && n.member.Role == bourse.RoleWorker &&
		self.member.Role == bourse.RoleWorker && self.member.Tag != 0 && n.member.Tag == self.member.Tag
}
