package admit

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

func drawAmounts(t *rapid.T, what string) bourse.Amounts {
	var out bourse.Amounts
	for _, r := range []bourse.Resource{"cpu", "gpu.a10", "memory"} {
		if rapid.Bool().Draw(t, what+" has "+string(r)) {
			out = append(out, bourse.Amount{Resource: r, Amount: rapid.Int64Range(0, 5).Draw(t, what)})
		}
	}
	return out
}

// What is drawn is what has left the holds, never more than is taken or was
// left, and as much of it as there is.
func TestDraw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		holds := make([]bourse.Hold, rapid.IntRange(0, 4).Draw(t, "holds"))
		for i := range holds {
			holds[i].Left = drawAmounts(t, "left")
		}
		before := make([]bourse.Amounts, len(holds))
		for i := range holds {
			before[i] = slices.Clone(holds[i].Left)
		}
		shared := slices.Clone(holds)
		takes := drawAmounts(t, "takes")
		drawn := draw(holds, takes)
		for i, a := range takes {
			was, is := int64(0), int64(0)
			for h := range holds {
				was += before[h].Of(a.Resource)
				is += holds[h].Left.Of(a.Resource)
			}
			if got := drawn[i]; got.Resource != a.Resource || got.Amount != min(a.Amount, was) || was-is != got.Amount {
				t.Fatalf("takes %v of %d: drew %v and left %d", a, was, got, is)
			}
		}
		for i := range shared {
			if diff := cmp.Diff(before[i], shared[i].Left); diff != "" {
				t.Fatalf("a list that others have was changed (-before +after):\n%s", diff)
			}
			for _, a := range holds[i].Left {
				if a.Amount < 0 || !takes.Has(a.Resource) && a.Amount != before[i].Of(a.Resource) {
					t.Fatalf("left %v of %v after %v", holds[i].Left, before[i], takes)
				}
			}
		}
	})
}
