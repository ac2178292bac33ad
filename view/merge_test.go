package view

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

// anyVersion draws a version of one row, from so few values that equal parts
// are common.
func anyVersion(t *rapid.T, table string) record {
	small := rapid.Int64Range(0, 2)
	r := record{
		table: table, key: "k", shared: true, clock: Clock(1 + small.Draw(t, "clock")),
		stamp: stamp{Position: Position{Stream{bourse.WorkerID(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "site")), 1}, 1 + uint64(small.Draw(t, "seq"))}},
	}
	if table == TableApps {
		r.cols = columns{
			{"created_at", small.Draw(t, "created_at")},
			{"id", rapid.SampledFrom([]string{"x", "y"}).Draw(t, "id")},
			{"life", small.Draw(t, "life")},
			{"org", rapid.SampledFrom([]string{"o", "p"}).Draw(t, "org")},
		}
		if rapid.Bool().Draw(t, "deleted") {
			r.cols = columns{{"created_at", r.cols[0].value}, {"deleted_at", small.Draw(t, "deleted_at")}, r.cols[1], r.cols[2], r.cols[3]}
		}
	} else if r.deleted = rapid.Bool().Draw(t, "deleted"); !r.deleted {
		r.cols = columns{{"digest", rapid.SampledFrom([]string{"x", "y"}).Draw(t, "digest")}}
	}
	r.hash = new(hasher).of(r)
	return r
}

func TestMergeIsASemilattice(t *testing.T) {
	same := func(t *rapid.T, law string, x, y record) {
		t.Helper()
		if d := cmp.Diff(x, y, cmp.AllowUnexported(record{}, stamp{}, column{}, proof{})); d != "" {
			t.Fatalf("%s: %s", law, d)
		}
	}
	for _, table := range []string{TableSecrets, TableApps} {
		t.Run(table, rapid.MakeCheck(func(t *rapid.T) {
			a, b, c := anyVersion(t, table), anyVersion(t, table), anyVersion(t, table)
			same(t, "commutative", merge(a, b), merge(b, a))
			same(t, "associative", merge(merge(a, b), c), merge(a, merge(b, c)))
			same(t, "idempotent", merge(a, a), a)
			same(t, "idempotent in what is merged", merge(merge(a, b), b), merge(a, b))
			if order(a, b) != -order(b, a) {
				t.Fatalf("order is not antisymmetric: %d and %d", order(a, b), order(b, a))
			}
		}))
	}
}

func TestMergeOfAppsIsThatOfTheRoot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyVersion(t, TableApps), anyVersion(t, TableApps)
		x, y := appOf(a), appOf(b)
		if d := cmp.Diff(x.Merge(y), appOf(merge(a, b))); d != "" {
			t.Fatalf("the root says otherwise: %s", d)
		}
	})
}

func TestLastWriterWins(t *testing.T) {
	at := func(clock Clock, site bourse.WorkerID, deleted bool) record {
		return record{table: TableSecrets, key: "k", shared: true, clock: clock, deleted: deleted, stamp: stamp{Position: Position{Stream{site, 1}, 1}}}
	}
	for name, c := range map[string]struct{ lost, stands record }{
		"later":               {at(1, "b", false), at(2, "a", false)},
		"a deletion is one":   {at(1, "a", false), at(2, "a", true)},
		"and can be undone":   {at(1, "a", true), at(2, "a", false)},
		"ties by the site id": {at(1, "a", false), at(1, "b", false)},
	} {
		if got := merge(c.lost, c.stands); order(got, c.stands) != 0 {
			t.Errorf("%s: %+v stands", name, got)
		}
	}
}

func TestColumnsChangeAndBack(t *testing.T) {
	anyColumns := func(t *rapid.T) columns {
		var c columns
		for _, name := range []string{"a", "b", "c", "d"} {
			switch rapid.IntRange(0, 3).Draw(t, name) {
			case 0:
				c = append(c, column{name, rapid.Int64Range(0, 1).Draw(t, "v")})
			case 1:
				c = append(c, column{name, []byte{byte(rapid.IntRange(0, 1).Draw(t, "v"))}})
			}
		}
		return c
	}
	rapid.Check(t, func(t *rapid.T) {
		from, to := anyColumns(t), anyColumns(t)
		change := from.until(to)
		if d := cmp.Diff(to, from.with(change), cmp.AllowUnexported(column{}), cmp.Transformer("nil", func(c columns) map[string]Value { return c.asMap() })); d != "" {
			t.Fatalf("%v with %v: %s", from, change, d)
		}
		if again := to.until(to); len(again) != 0 {
			t.Fatalf("no change is %v", again)
		}
		text, err := encodeExtra(to)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodeExtra(text)
		if err != nil || len(to.until(back)) != 0 || len(back) != len(to) {
			t.Fatalf("%v as JSON %s comes back as %v, %v", to, text, back, err)
		}
	})
}

func TestExtraKeepsTypes(t *testing.T) {
	want := columns{
		{"b", []byte{0, 255}}, {"f", 3.0}, {"g", 1e300}, {"i", int64(-1 << 63)}, {"j", int64(9_007_199_254_740_993)}, {"t", "<&> \"äß\u2028\""}, {"z", ""},
	}
	text, err := encodeExtra(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeExtra(text)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(column{})); d != "" {
		t.Errorf("%s (-want +got):\n%s", text, d)
	}
}

func TestClockOfAWrite(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	for name, c := range map[string]struct {
		last, below Clock
		want        Clock
	}{
		"the time":                     {0, 0, clockAt(now)},
		"after the last given":         {clockAt(now) + 7, 0, clockAt(now) + 8},
		"over what is there":           {0, clockAt(now) + 9, clockAt(now) + 10},
		"far ahead once, not for good": {clockAt(now.Add(time.Hour)), 0, clockAt(now)},
	} {
		b := newBatch(nil, nil, &state{clock: c.last}, now, nil, nil)
		if got := b.tick(c.below); got != c.want {
			t.Errorf("%s: %x, want %x", name, got, c.want)
		}
	}
}
