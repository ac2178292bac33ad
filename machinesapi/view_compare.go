package machinesapi

import (
	"cmp"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// maxViewLag is how long a change may be missing from a member's copy before the member counts as behind. Gossip
// usually delivers changes much sooner; maxViewLag allows for a few rounds of anti-entropy.
const maxViewLag = 5 * time.Second

// CompareViews compares the members' copies of the view at the time now. It sets each member's ViewLag and sorts the
// members. It computes Gaps, Behind and LagMS from all members' Heads, but keeps the value that a member has reported
// if that value is larger.
//
// Tables are compared only among members that have all transactions, because the rows of other
// members may differ legitimately. The most frequent checksum counts as correct. If several
// checksums are equally frequent, none of them counts as correct.
func CompareViews(members []MemberHealth, now time.Time) ViewHealth {
	best := furthest(members)
	for i := range members {
		switch m := &members[i]; {
		case m.Reachable:
			m.setLag(best, now)
		case m.State != ViewDown:
			m.State = ViewUnreachable
		}
	}
	findDiffering(members)
	out := ViewHealth{Agrees: true, Members: members}
	for i := range members {
		out.Agrees = out.Agrees && (members[i].State == ViewOK || members[i].State == ViewCatchingUp)
	}
	slices.SortStableFunc(members, func(a, b MemberHealth) int {
		return cmp.Or(cmp.Compare(b.Role, a.Role), cmp.Compare(a.Region, b.Region), cmp.Compare(a.ID, b.ID)) // workers first
	})
	return out
}

type streamKey struct {
	site  bourse.WorkerID
	epoch uint64
}

// furthest returns, for each stream, the head of the member that has read furthest.
func furthest(members []MemberHealth) map[streamKey]ViewHead {
	best := map[streamKey]ViewHead{}
	for i := range members {
		for _, h := range members[i].Heads {
			k := streamKey{h.Site, h.Epoch}
			if h.Seq > best[k].Seq {
				best[k] = h
			}
		}
	}
	return best
}

// setLag determines how far the member is behind. best contains, for each stream, the head of the member that has read
// furthest. The lag is a lower bound, because it is measured from the latest missing transaction.
func (m *MemberHealth) setLag(best map[streamKey]ViewHead, now time.Time) {
	var gaps int
	var behind uint64
	var lag time.Duration
	if m.Heads != nil {
		own := map[streamKey]uint64{}
		for _, h := range m.Heads {
			own[streamKey{h.Site, h.Epoch}] = h.Seq
		}
		for k, h := range best {
			if own[k] < h.Seq {
				gaps++
				behind += h.Seq - own[k]
				lag = max(lag, now.Sub(h.At))
			}
		}
		m.Streams = max(m.Streams, len(m.Heads))
	}
	m.Gaps, m.Behind, m.LagMS = max(m.Gaps, gaps), max(m.Behind, behind), max(m.LagMS, lag.Milliseconds())
	switch {
	case m.Gaps == 0 && m.Behind == 0:
		m.State, m.LagMS = ViewOK, 0
	case m.LagMS > maxViewLag.Milliseconds():
		m.State = ViewBehind
	default:
		m.State = ViewCatchingUp
	}
}

// findDiffering finds the members that have all transactions but whose rows differ from most members' rows.
func findDiffering(members []MemberHealth) {
	votes := map[string]map[string]int{} // number of members, by table and checksum
	for i := range members {
		if members[i].State != ViewOK {
			continue
		}
		for _, t := range members[i].Tables {
			if votes[t.Name] == nil {
				votes[t.Name] = map[string]int{}
			}
			votes[t.Name][t.Checksum]++
		}
	}
	for i := range members {
		m := &members[i]
		if m.State != ViewOK {
			continue
		}
		for _, t := range m.Tables {
			if !hasMajority(votes[t.Name], t.Checksum) {
				m.Differs = append(m.Differs, t.Name)
			}
		}
		if m.Differs != nil {
			slices.Sort(m.Differs)
			m.State = ViewDiffers
		}
	}
}

// hasMajority reports whether one checksum has more votes than every other checksum.
func hasMajority(votes map[string]int, checksum string) bool {
	for other, n := range votes {
		if other != checksum && n >= votes[checksum] {
			return false
		}
	}
	return true
}
