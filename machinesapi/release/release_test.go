package release_test

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse/machinesapi/release"
)

// TestVersionsIncrease checks that versions increase in the order of the IDs, even if brokers create releases
// independently of each other, and that removing the oldest releases does not change other releases' versions.
func TestVersionsIncrease(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []release.Release
		lied := false
		for range rapid.IntRange(0, 20).Draw(t, "releases") {
			version := release.Next(list)
			if rapid.Bool().Draw(t, "other broker") { // the other broker knows an older list, or is malicious
				version = rapid.OneOf(rapid.Int64Range(0, version), rapid.SampledFrom([]int64{math.MaxInt64, math.MinInt64})).Draw(t, "version")
				lied = lied || version == math.MaxInt64
			}
			list = append(list, release.Release{ID: release.NewID(), Version: version})
			release.Number(list)
		}
		for i := 1; i < len(list); i++ {
			if list[i].Version <= list[i-1].Version || list[i].ID < list[i-1].ID || list[i].Version < 1 {
				t.Fatalf("version %d of %s follows version %d of %s", list[i].Version, list[i].ID, list[i-1].Version, list[i-1].ID)
			}
		}
		if lied { // versions above maxVersion do depend on the older releases
			return
		}
		kept := slices.Clone(list[rapid.IntRange(0, len(list)).Draw(t, "dropped"):])
		want := slices.Clone(kept)
		slices.Reverse(kept)
		release.Number(kept)
		for i := range kept {
			if kept[i].Version != want[i].Version {
				t.Fatalf("version %d of %s became %d after the oldest releases were removed", want[i].Version, want[i].ID, kept[i].Version)
			}
		}
	})
}

func TestValidate(t *testing.T) {
	long := string(make([]byte, 2<<10))
	for name, change := range map[string]func(*release.Release){
		"no id":             func(r *release.Release) { r.ID = "" },
		"an id in lower":    func(r *release.Release) { r.ID = "01j00000000000000000000000" },
		"a status":          func(r *release.Release) { r.Status = "done" },
		"a long strategy":   func(r *release.Release) { r.Strategy = long },
		"a long image":      func(r *release.Release) { r.Image = long },
		"a long definition": func(r *release.Release) { r.Definition = json.RawMessage(make([]byte, 65<<10)) },
	} {
		r := release.Release{ID: release.NewID(), Status: release.Pending}
		if err := r.Validate(); err != nil {
			t.Fatal(err)
		}
		if change(&r); r.Validate() == nil {
			t.Errorf("%s: got no error, want an invalid one", name)
		}
	}
}
