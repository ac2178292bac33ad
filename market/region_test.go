package market_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

// TestInvariant3RegionIsLaw uses a directory that is wrong about the regions of some workers, and
// workers that lie about their regions. Machines must still be placed in the regions that their
// orders name, and in the first choice that has capacity.
func TestInvariant3RegionIsLaw(t *testing.T) {
	all := []bourse.Region{"gru", "mad", "nrt"}
	rapid.Check(t, func(t *rapid.T) {
		region := rapid.SampledFrom(all)
		specs := make([]Spec, rapid.IntRange(1, 12).Draw(t, "workers"))
		for i := range specs {
			specs[i] = Spec{
				ID: bourse.WorkerID(fmt.Sprintf("w%d", i)), Region: region.Draw(t, "region"), Hint: region.Draw(t, "hint"),
				Total: room(rapid.Int64Range(0, 2).Draw(t, "room")),
			}
		}
		c := newCluster(specs...)
		for _, s := range specs {
			if rapid.IntRange(0, 4).Draw(t, "liar") == 0 {
				c.Tell(s.ID, &Lies{Quote: func(q *bourse.Quote) { q.Region, q.Refusal = s.Hint, nil }})
			}
		}
		o := order()
		for _, r := range rapid.SliceOfNDistinct(region, 1, 3, rapid.ID[bourse.Region]).Draw(t, "choices") {
			o.Regions = append(o.Regions, bourse.Choice{r})
		}
		o.Race = rapid.IntRange(0, 3).Draw(t, "race")
		o.HasChosenID = rapid.Bool().Draw(t, "named")
		a := place(t.Context(), broker(c, nil), o)

		want := bourse.Region("") // the first choice that has capacity on a worker whose region is right in the directory
		for _, choice := range o.Regions {
			if slices.ContainsFunc(specs, func(s Spec) bool {
				return s.Region == choice[0] && s.Hint == s.Region && s.Total.Of(bourse.ResourceMemory) > 0
			}) {
				want = choice[0]
				break
			}
		}
		if got := a.fill.Machine.Region; got != want {
			t.Fatalf("filled in %q, want %q: %v\n%+v", got, want, a.err, a.decision)
		}
		for _, m := range c.Living(o.ID) {
			if m.ID != a.fill.Machine.ID {
				t.Fatalf("machine %s also exists in %s", m.ID, m.Region)
			}
		}
	})
}

// TestFillOutsideTheRegionIsUndone checks that, if a worker fills an order outside of the order's
// regions, the fill is undone.
func TestFillOutsideTheRegionIsUndone(t *testing.T) {
	c := newCluster(
		Spec{ID: "a", Region: "gru", Total: room(1)},
		Spec{ID: "b", Region: "gru", Total: room(1)},
	)
	for _, id := range []bourse.WorkerID{"a", "b"} {
		c.Tell(id, &Lies{Claim: func(f *bourse.Fill, r *bourse.Refusal, err error) (*bourse.Fill, *bourse.Refusal, error) {
			f.Machine.Region = "mad"
			return f, r, err
		}})
	}
	o := order("gru")
	a := place(t.Context(), broker(c, nil), o)
	fails(t, a.err, bourse.CodeInsufficient)
	if living := c.Living(o.ID); len(living) != 0 {
		t.Errorf("%d machines exist", len(living))
	}
}
