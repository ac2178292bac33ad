package wire

import (
	"bytes"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

func testPlacements(t testing.TB, site bourse.WorkerID, role bourse.Role) *Placements {
	t.Helper()
	k, err := NewKey(role)
	if err != nil {
		t.Fatal(err)
	}
	return NewPlacements("test", site, k, time.Now)
}

var somePlacement = bourse.Placement{Order: "01J0000000000000000000000A", Kind: bourse.KindMachine, App: "shop", AppID: "id", Worker: "w1"}

func TestPlacementsOfBrokersAreValid(t *testing.T) {
	signed, err := testPlacements(t, "b1", bourse.RoleBroker).Sign(somePlacement)
	if err != nil {
		t.Fatal(err)
	}
	reader := testPlacements(t, "p1", bourse.RoleProxy)
	for range 2 { // the second result comes from the cache
		if got, err := reader.Verify(signed); err != nil || got != somePlacement {
			t.Fatalf("verified as %+v, %v", got, err)
		}
	}
}

func TestInvalidPlacementsAreRejected(t *testing.T) {
	broker := testPlacements(t, "b1", bourse.RoleBroker)
	signed, err := broker.Sign(somePlacement)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(p *Placements) []byte {
		b, err := p.Sign(somePlacement)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	k, err := NewKey(bourse.RoleBroker)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"nothing":            nil,
		"a worker's":         sign(testPlacements(t, "w1", bourse.RoleWorker)),
		"a proxy's":          sign(testPlacements(t, "p1", bourse.RoleProxy)),
		"of another cluster": sign(NewPlacements("other", "b1", k, time.Now)),
		"too long":           append(bytes.Clone(signed), make([]byte, maxPlacement)...),
	} {
		if got, err := broker.Verify(b); err == nil || got != (bourse.Placement{}) {
			t.Errorf("%s: verified as %+v, %v", name, got, err)
		}
	}
	for i := range signed {
		changed := bytes.Clone(signed)
		changed[i] ^= 1
		if got, err := broker.Verify(changed); err == nil && got != somePlacement {
			t.Errorf("byte %d changed: verified as %+v", i, got)
		}
	}
}

func FuzzVerifyPlacement(f *testing.F) {
	broker := testPlacements(f, "b1", bourse.RoleBroker)
	signed, err := broker.Sign(somePlacement)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(signed)
	f.Add(signed[:len(signed)/2])
	f.Add([]byte{0xa0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := broker.Verify(b); err != nil && got != (bourse.Placement{}) {
			t.Errorf("%+v together with %v", got, err)
		}
	})
}
