package admit

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
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

// subtractHeld removes exactly the amounts that it returns from the holds. For each resource, that is the requested
// amount, or everything that the holds contain if that is less.
func TestDraw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		holds := make([]bourse.Hold, rapid.IntRange(0, 4).Draw(t, "holds"))
		for i := range holds {
			holds[i].Remaining = drawAmounts(t, "left")
		}
		before := make([]bourse.Amounts, len(holds))
		for i := range holds {
			before[i] = slices.Clone(holds[i].Remaining)
		}
		shared := slices.Clone(holds)
		takes := drawAmounts(t, "takes")
		drawn := subtractHeld(holds, takes)
		for i, a := range takes {
			was, is := int64(0), int64(0)
			for h := range holds {
				was += before[h].Of(a.Resource)
				is += holds[h].Remaining.Of(a.Resource)
			}
			if got := drawn[i]; got.Resource != a.Resource || got.Amount != min(a.Amount, was) || was-is != got.Amount {
				t.Fatalf("requested %v of %d: subtracted %v, %d remaining", a, was, got, is)
			}
		}
		for i := range shared {
			if diff := cmp.Diff(before[i], shared[i].Remaining); diff != "" {
				t.Fatalf("the caller's list was changed (-before +after):\n%s", diff)
			}
			for _, a := range holds[i].Remaining {
				if a.Amount < 0 || !takes.Has(a.Resource) && a.Amount != before[i].Of(a.Resource) {
					t.Fatalf("remaining %v of %v after %v", holds[i].Remaining, before[i], takes)
				}
			}
		}
	})
}

// A hold that has expired but is not deleted yet stays expired when its reservation's other holds are extended, because
// its capacity may already be taken.
func TestProlong(t *testing.T) {
	s := newStore(t)
	now := time.Now().UTC()
	key := bourse.NewReservationKey()
	holds := map[string]*bourse.Hold{}
	for name, ttl := range map[string]time.Duration{"expired": 0, "soon": time.Second, "later": time.Hour} {
		holds[name] = &bourse.Hold{Order: bourse.NewOrderID(), Reservation: key, App: "web", AppID: "01", CreatedAt: now.Add(-time.Hour), ExpiresAt: now.Add(ttl)}
	}
	err := s.Update(t.Context(), func(tx *store.Tx) error {
		for _, h := range holds {
			if err := tx.PutHold(h); err != nil {
				return err
			}
		}
		end, err := extendExpiry(tx, key, now, now.Add(time.Minute))
		if want := now.Add(time.Hour); !end.Equal(want) {
			t.Errorf("the holds end at %v, want %v", end, want)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]time.Duration{"expired": 0, "soon": time.Hour, "later": time.Hour} {
		if err := s.View(func(tx *store.Tx) error {
			h, ok, err := tx.Hold(holds[name].Order)
			if !ok || !h.ExpiresAt.Equal(now.Add(want)) {
				t.Errorf("hold %s: found %t, ends %v from now, want %v", name, ok, h.ExpiresAt.Sub(now), want)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
}
