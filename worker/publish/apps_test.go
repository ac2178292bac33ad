package publish

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

// If two stores exchange the records that reconcile returns, both end up with the merge
// of all records.
func TestReconcile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		day := func(label string) time.Time { return time.Unix(rapid.Int64Range(1, 3).Draw(t, label), 0).UTC() }
		draw := func(label string) []bourse.App {
			byName := map[bourse.AppName]bourse.App{}
			for range rapid.IntRange(0, 6).Draw(t, label) {
				name := bourse.AppName(rapid.SampledFrom([]string{"a1", "b1", "c1", "d1"}).Draw(t, "name"))
				app := bourse.App{Name: name, ID: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "id"), Generation: rapid.IntRange(0, 1).Draw(t, "life"), CreatedAt: day("created"), Proof: []byte{1}}
				if rapid.Bool().Draw(t, "deleted") {
					app.DeletedAt = new(day("deletion"))
				}
				byName[name] = app
			}
			var out []bourse.App
			for _, app := range byName {
				out = append(out, app)
			}
			return out
		}
		kept, listed := draw("kept"), draw("listed")
		want := merged(kept, listed)
		keep, publish := reconcile(kept, listed)
		for side, got := range map[string]map[bourse.AppName]bourse.App{"kept": merged(kept, keep), "listed": merged(listed, publish)} {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s (-want +got):\n%s", side, diff)
			}
		}
		after := func(m map[bourse.AppName]bourse.App) (out []bourse.App) {
			for _, app := range m {
				out = append(out, app)
			}
			return out
		}
		if keep, publish := reconcile(after(want), after(want)); len(keep)+len(publish) > 0 {
			t.Fatalf("two equal stores exchange %v and %v", keep, publish)
		}
	})
}

func merged(lists ...[]bourse.App) map[bourse.AppName]bourse.App {
	out := map[bourse.AppName]bourse.App{}
	for _, app := range slices.Concat(lists...) {
		if old, ok := out[app.Name]; ok {
			app = old.Merge(app)
		}
		out[app.Name] = app
	}
	return out
}
