package bourse_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

// anyCopy generates a worker's copy of an app's record. Copies with the same ID can differ only in
// the time of the deletion.
func anyCopy() *rapid.Generator[bourse.App] {
	return rapid.Custom(func(t *rapid.T) bourse.App {
		n := rapid.IntRange(0, 3).Draw(t, "id")
		a := bourse.App{Name: "shop", ID: string(rune('a' + n)), Org: "org", Generation: n % 2, CreatedAt: time.Unix(int64(n%3), 0).UTC()}
		if rapid.Bool().Draw(t, "deleted") {
			at := time.Unix(rapid.Int64Range(10, 12).Draw(t, "at"), 0).UTC()
			a.DeletedAt = &at
		}
		return a
	})
}

func same(t *rapid.T, what string, a, b bourse.App) {
	t.Helper()
	if diff := cmp.Diff(a, b); diff != "" {
		t.Fatalf("%s:\n%s", what, diff)
	}
}

func TestMergeIsCommutativeAndIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyCopy().Draw(t, "a"), anyCopy().Draw(t, "b")
		same(t, "a+b, b+a", a.Merge(b), b.Merge(a))
		same(t, "a+a, a", a.Merge(a), a)
		same(t, "(a+b)+b, a+b", a.Merge(b).Merge(b), a.Merge(b))
	})
}

func TestMergeIsAssociative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := anyCopy().Draw(t, "a"), anyCopy().Draw(t, "b"), anyCopy().Draw(t, "c")
		same(t, "(a+b)+c, a+(b+c)", a.Merge(b).Merge(c), a.Merge(b.Merge(c)))
	})
}

func TestMergeByRules(t *testing.T) {
	at := func(s int64) *time.Time { return new(time.Unix(s, 0).UTC()) }
	early := bourse.App{Name: "shop", ID: "b", CreatedAt: *at(1)}
	late := bourse.App{Name: "shop", ID: "a", CreatedAt: *at(2)}
	twin := bourse.App{Name: "shop", ID: "a", CreatedAt: *at(1)}
	second := bourse.App{Name: "shop", ID: "c", Generation: 1, CreatedAt: *at(9)}
	gone := early
	gone.DeletedAt = at(5)
	goneLater := early
	goneLater.DeletedAt = at(6)
	for name, c := range map[string]struct{ a, b, want bourse.App }{
		"a deletion wins":                      {early, gone, gone},
		"the first deletion wins":              {gone, goneLater, gone},
		"the earlier of two makers wins":       {early, late, early},
		"of two at once the smaller id":        {early, twin, twin},
		"a second life replaces a deleted app": {gone, second, second},
		"and a copy that missed the deletion":  {early, second, second},
		"who came too late does not return":    {gone, late, gone},
	} {
		for _, got := range []bourse.App{c.a.Merge(c.b), c.b.Merge(c.a)} {
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	}
}

// TestPrivateAddress checks that the network and the machine's ID determine the machine's address,
// and that different machines in a network have different addresses.
func TestPrivateAddress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		network := rapid.String().Draw(t, "network")
		a, b := bourse.NewMachineID(7), bourse.NewMachineID(8)
		one, other := bourse.PrivateAddress(network, a), bourse.PrivateAddress(network, b)
		prefix := bourse.NetworkPrefix(network)
		if one == other || !prefix.Contains(one) || !prefix.Contains(other) || one != bourse.PrivateAddress(network, a) {
			t.Errorf("got addresses %s and %s, want different and stable ones in %s", one, other, prefix)
		}
	})
	if got := bourse.PrivateAddress("org:a", "00000700000001").String(); got != "fdaa:4629:5272:0:7:0:1:2" {
		t.Errorf("got address %s: addresses of existing machines must not change between releases", got)
	}
	if bourse.PrivateAddress("a", "nonsense").IsValid() {
		t.Error("got an address for a malformed machine ID, want none")
	}
}
