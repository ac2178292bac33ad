package market

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

func members(n int) []bourse.Member {
	out := make([]bourse.Member, n)
	for i := range out {
		out[i].ID = bourse.WorkerID(fmt.Sprintf("w%d", i))
	}
	return out
}

// TestSampleLosesAndRepeatsNobody checks that the sample and the rest together contain each member
// once. If the rest is asked after the sample, every member is asked, and none is asked twice.
func TestSampleLosesAndRepeatsNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := members(rapid.IntRange(0, 50).Draw(t, "members"))
		for i := range all {
			if rapid.Bool().Draw(t, "hint") {
				all[i].Free = bourse.Amounts{{Resource: bourse.ResourceMemory, Amount: rapid.Int64Range(0, 2).Draw(t, "free")}}
			}
		}
		before := slices.Clone(all)
		Sample(all, bourse.Amounts{{Resource: bourse.ResourceMemory, Amount: 1}}, rapid.IntRange(0, 60).Draw(t, "d"), rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)))
		byID := func(a, b bourse.Member) int { return slices.Compare([]byte(a.ID), []byte(b.ID)) }
		slices.SortFunc(all, byID)
		slices.SortFunc(before, byID)
		for i := range all {
			if all[i].ID != before[i].ID {
				t.Fatalf("got %s, want %s", all[i].ID, before[i].ID)
			}
		}
	})
}

// TestSampleLeansOnTheHint checks that every member is drawn occasionally, and that members with
// capacity are drawn more often.
func TestSampleLeansOnTheHint(t *testing.T) {
	need := bourse.Amounts{{Resource: bourse.ResourceMemory, Amount: 256}}
	drawn := map[bool]int{}
	each := map[bourse.WorkerID]int{}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		all := members(40)
		for i := range all {
			all[i].Free = bourse.Amounts{{Resource: bourse.ResourceMemory, Amount: int64(i % 2 * 512)}}
		}
		Sample(all, need, 4, rng)
		for _, m := range all[:4] {
			drawn[rateHint(m.Free, need) == 2]++
			each[m.ID]++
		}
	}
	if len(each) != 40 {
		t.Errorf("%d of 40 workers were drawn at least once", len(each))
	}
	// The better of two members is taken, so three quarters of those taken have capacity.
	if share := float64(drawn[true]) / 8000; share < 0.7 || share > 0.8 {
		t.Errorf("%.2f of the drawn workers have capacity, want about 0.75", share)
	}
}

func TestRoom(t *testing.T) {
	need := bourse.Amounts{{Resource: "memory", Amount: 2}, {Resource: "slots", Amount: 1}}
	for name, test := range map[string]struct {
		free bourse.Amounts
		want int
	}{
		"all is free":             {bourse.Amounts{{Resource: "memory", Amount: 2}, {Resource: "slots", Amount: 1}}, 2},
		"no accounts":             {nil, 1},
		"one resource is short":   {bourse.Amounts{{Resource: "memory", Amount: 1}, {Resource: "slots", Amount: 1}}, 0},
		"one resource is missing": {bourse.Amounts{{Resource: "memory", Amount: 2}}, 0},
	} {
		if got := rateHint(test.free, need); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
