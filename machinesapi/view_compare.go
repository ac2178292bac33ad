package machinesapi

import (
	"cmp"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// viewPatience is how long a change may take to reach a member before the member counts as behind. It is much longer
// than gossip needs, and includes some rounds of anti-entropy.
const viewPatience = 5 * time.Second

// CompareViews compares the members' copies of the view at the time now. It uses their Heads and Tables, and their
// own Gaps, Behind and LagMS where those are larger. It sets each member's Standing and sorts the members.
//
// Tables are compared only among members that have all transactions, because the others' rows may differ
// legitimately. The checksum of the majority is considered correct. If no checksum has a majority, none is.
func CompareViews(members []MemberHealth, now time.Time) ViewHealth {
	best := furthest(members)
	for i := range members {
		switch m := &members[i]; {
		case m.Reachable:
			m.measure(best, now)
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

// furthest returns for each stream the head of the member that is furthest ahead.
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

// measure sets how far the member is behind the best of all members. The lag is a lower bound, because it is measured
// from the latest missing transaction.
func (m *MemberHealth) measure(best map[streamKey]ViewHead, now time.Time) {
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
	case m.LagMS > viewPatience.Milliseconds():
		m.State = ViewBehind
	default:
		m.State = ViewCatchingUp
	}
}

// findDiffering finds the members that have all transactions but different rows than most others.
func findDiffering(members []MemberHealth) {
	votes := map[string]map[string]int{} // members by table and checksum
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
			if !hasMost(votes[t.Name], t.Checksum) {
				m.Differs = append(m.Differs, t.Name)
			}
		}
		if m.Differs != nil {
			slices.Sort(m.Differs)
			m.State = ViewDiffers
		}
	}
}

// hasMost reports whether a checksum has more votes than every other one.
func hasMost(votes map[string]int, checksum string) bool {
	for other, n := range votes {
		if other != checksum && n >= votes[checksum] {
			return false
		}
	}
	return true
}
