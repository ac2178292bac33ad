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
		holdings []holding
		budget   int64
		want     []string
		left     int64
	}{
		"all fit":                    {[]holding{{name: "a", parts: parts{"x": 10}}}, 10, nil, 10},
		"the oldest goes":            {[]holding{{name: "new", parts: parts{"x": 10}, usedAt: at(2)}, {name: "old", parts: parts{"y": 10}, usedAt: at(1)}}, 10, []string{"old"}, 10},
		"one in use stays":           {[]holding{{name: "new", parts: parts{"x": 10}, usedAt: at(2)}, {name: "old", parts: parts{"y": 10}, usedAt: at(1), fixed: true}}, 10, []string{"new"}, 10},
		"shared layers count once":   {[]holding{{name: "a", parts: base}, {name: "b", parts: own}}, 80, nil, 80},
		"shared layers do not go":    {[]holding{{name: "a", parts: base}, {name: "b", parts: own, fixed: true}}, 70, []string{"a"}, 70},
		"both of the shared ones go": {[]holding{{name: "a", parts: base}, {name: "b", parts: own}}, 60, []string{"a", "b"}, 0},
		"too large":                  {[]holding{{name: "a", parts: parts{"x": 10}, fixed: true}}, 5, nil, 10},
	} {
		got, left := victims(tc.holdings, tc.budget)
		if diff := cmp.Diff(tc.want, got); diff != "" || left != tc.left {
			t.Errorf("%s: (-want +got)\n%sleft %d, want %d", name, diff, left, tc.left)
		}
	}
}

// TestVictimsProperties checks that the remaining holdings are within the budget, that nothing
// fixed is evicted, and that nothing is evicted unnecessarily.
func TestVictimsProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var holdings []holding
		for i := range rapid.IntRange(0, 8).Draw(t, "holdings") {
			p := parts{}
			for range rapid.IntRange(0, 4).Draw(t, "parts") {
				n := rapid.IntRange(0, 9).Draw(t, "part")
				p[string(rune('a'+n))] = int64(n + 1) // so that equal parts have equal sizes
			}
			holdings = append(holdings, holding{
				name: string(rune('A' + i)), parts: p, usedAt: at(rapid.IntRange(0, 5).Draw(t, "used")), fixed: rapid.Bool().Draw(t, "fixed"),
			})
		}
		budget := int64(rapid.IntRange(0, 60).Draw(t, "budget"))
		gone, left := victims(holdings, budget)
		stays := slices.DeleteFunc(slices.Clone(holdings), func(h holding) bool { return slices.Contains(gone, h.name) })
		if got := usage(stays); got != left {
			t.Fatalf("%v stay and take %d, said were %d", stays, got, left)
		}
		for _, h := range holdings {
			if h.fixed && slices.Contains(gone, h.name) {
				t.Fatalf("%s is fixed and goes", h.name)
			}
		}
		if left > budget && slices.ContainsFunc(stays, func(h holding) bool { return !h.fixed }) {
			t.Fatalf("%d are left of a budget of %d, and %v may go", left, budget, stays)
		}
		if len(gone) > 0 {
			last := slices.IndexFunc(holdings, func(h holding) bool { return h.name == gone[len(gone)-1] })
			if usage(append(stays, holdings[last])) <= budget {
				t.Fatalf("%v go, the last of them need not", gone)
			}
		}
	})
}
