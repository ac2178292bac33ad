package image

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func at(minute int) time.Time { return time.Unix(int64(minute)*60, 0) }

func TestVictims(t *testing.T) {
	base, own := parts{"base": 50, "a": 10}, parts{"base": 50, "b": 20}
	for name, tc := range map[string]struct {
		holdings []diskUser
		budget   int64
		want     []string
		left     int64
	}{
		"all fit":                            {[]diskUser{{name: "a", parts: parts{"x": 10}}}, 10, nil, 10},
		"the oldest goes":                    {[]diskUser{{name: "new", parts: parts{"x": 10}, usedAt: at(2)}, {name: "old", parts: parts{"y": 10}, usedAt: at(1)}}, 10, []string{"old"}, 10},
		"an image in use stays":              {[]diskUser{{name: "new", parts: parts{"x": 10}, usedAt: at(2)}, {name: "old", parts: parts{"y": 10}, usedAt: at(1), inUse: true}}, 10, []string{"new"}, 10},
		"shared layers count once":           {[]diskUser{{name: "a", parts: base}, {name: "b", parts: own}}, 80, nil, 80},
		"shared layers are not evicted":      {[]diskUser{{name: "a", parts: base}, {name: "b", parts: own, inUse: true}}, 70, []string{"a"}, 70},
		"shared layers are evicted together": {[]diskUser{{name: "a", parts: base}, {name: "b", parts: own}}, 60, []string{"a", "b"}, 0},
		"too large":                          {[]diskUser{{name: "a", parts: parts{"x": 10}, inUse: true}}, 5, nil, 10},
	} {
		got, left := selectEvictions(tc.holdings, tc.budget)
		if diff := cmp.Diff(tc.want, got); diff != "" || left != tc.left {
			t.Errorf("%s: (-want +got)\n%sleft %d, want %d", name, diff, left, tc.left)
		}
	}
}

// TestVictimsProperties checks that disk users in use are not evicted, that the remaining ones fit into the budget
// unless all of them are in use, and that nothing is evicted unnecessarily.
func TestVictimsProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var holdings []diskUser
		for i := range rapid.IntRange(0, 8).Draw(t, "holdings") {
			p := parts{}
			for range rapid.IntRange(0, 4).Draw(t, "parts") {
				n := rapid.IntRange(0, 9).Draw(t, "part")
				p[string(rune('a'+n))] = int64(n + 1) // so that equal parts have equal sizes
			}
			holdings = append(holdings, diskUser{
				name: string(rune('A' + i)), parts: p, usedAt: at(rapid.IntRange(0, 5).Draw(t, "used")), inUse: rapid.Bool().Draw(t, "fixed"),
			})
		}
		budget := int64(rapid.IntRange(0, 60).Draw(t, "budget"))
		gone, left := selectEvictions(holdings, budget)
		stays := slices.DeleteFunc(slices.Clone(holdings), func(h diskUser) bool { return slices.Contains(gone, h.name) })
		if got := diskUsage(stays); got != left {
			t.Fatalf("%v stay and take %d, but %d were reported", stays, got, left)
		}
		for _, h := range holdings {
			if h.inUse && slices.Contains(gone, h.name) {
				t.Fatalf("%s is in use but evicted", h.name)
			}
		}
		if left > budget && slices.ContainsFunc(stays, func(h diskUser) bool { return !h.inUse }) {
			t.Fatalf("%d remain with a budget of %d, but %v may be evicted", left, budget, stays)
		}
		if len(gone) > 0 {
			last := slices.IndexFunc(holdings, func(h diskUser) bool { return h.name == gone[len(gone)-1] })
			if diskUsage(append(stays, holdings[last])) <= budget {
				t.Fatalf("%v are evicted, but the last one need not be", gone)
			}
		}
	})
}
