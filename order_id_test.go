package bourse_test

import (
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

// One id that two apps choose is two orders, and each app finds its own again
// by the id that it chose and by the one that it was answered with.
func TestOrderIDsMeanSomethingOnlyWithinTheirApp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var id ulid.ULID
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		ours := rapid.StringMatching(`[0-9A-Z]{0,26}`).Draw(t, "ours")
		theirs := rapid.StringMatching(`[0-9A-Z]{0,26}`).Filter(func(s string) bool { return s != ours }).Draw(t, "theirs")
		chosen := bourse.OrderID(id.String())

		a, b := chosen.In(ours), chosen.In(theirs)
		if a == b {
			t.Fatalf("%s is %s in both apps", chosen, a)
		}
		if again := a.In(ours); again != a {
			t.Errorf("%s becomes %s when it is repeated", a, again)
		}
		if lower := bourse.OrderID(strings.ToLower(string(chosen))).In(ours); lower != a {
			t.Errorf("%s in small letters is %s, want %s", chosen, lower, a)
		}
		if stolen := a.In(theirs); stolen == a {
			t.Errorf("%s names the same order in both apps", a)
		}
		if err := a.Validate(); err != nil {
			t.Error(err)
		}
		if ulid.MustParse(string(a)).Time() != id.Time() {
			t.Errorf("%s has not the time of %s", a, chosen)
		}
	})
}

func TestReservationKeysMeanSomethingOnlyWithinTheirApp(t *testing.T) {
	key := bourse.NewReservationKey()
	a, b := key.In("A"), key.In("B")
	if a == b || a.In("A") != a || a.In("B") == a || a.Validate() != nil {
		t.Errorf("%s is %s in app A and %s in app B", key, a, b)
	}
	if order := bourse.OrderID(key).In("A"); string(order) == string(a) {
		t.Errorf("%s is one id as an order and as a reservation", order)
	}
}

func TestWhatIsNoIDStaysNone(t *testing.T) {
	for _, text := range []string{"", "x", "01ARZ3NDEKTSV4RRFFQ69G5FA", "81ARZ3NDEKTSV4RRFFQ69G5FAVU"} {
		if got := bourse.OrderID(text).In("A"); got != "" {
			t.Errorf("%q becomes %s", text, got)
		}
	}
}
