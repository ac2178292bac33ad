package market

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

// TestQuoteCacheIsBounded checks that the size of the cache is limited, however many apps, workers
// and refusals there are.
func TestQuoteCacheIsBounded(t *testing.T) {
	const most = 50
	s := quoteCache{timeout: time.Hour, max: most, workers: map[bourse.WorkerID]*cachedWorker{}}
	all := members(7)
	for i := range 1000 {
		of := shape{app: bourse.AppRef{Name: bourse.AppName(fmt.Sprintf("a%d", i%300))}, image: "host"}
		quotes := make([]bourse.Quote, len(all))
		for k := range quotes {
			quotes[k].Worker = all[k].ID
			switch (i + k) % 5 {
			case 0:
				quotes[k].Refusal = newRefusal(&all[k], bourse.RefusedResource, "")
			case 1:
				if i%7 == 0 {
					quotes[k].Refusal = newRefusal(&all[k], bourse.RefusedNoAnswer, "")
				}
			}
		}
		s.store(&of, time.Now(), all, quotes)
		s.answered(all[i%7].ID, s.claiming(all[i%7].ID, &of, time.Now()), &of, i%11 != 0)
		words, apps := 0, 0
		for _, d := range s.workers {
			words += len(d.quotes)
			apps += len(d.machines)
		}
		if words != s.count || words > most || apps > most || len(s.workers) > most {
			t.Fatalf("round %d: %d words (counted %d), %d apps, %d workers", i, words, s.count, apps, len(s.workers))
		}
	}
	if s.count == 0 {
		t.Error("no quote was cached")
	}
}

func TestOversizeQuotesAreNotCached(t *testing.T) {
	many := make([]bourse.Account, maxLines+1)
	for name, q := range map[string]bourse.Quote{
		"accounts":    {Accounts: many},
		"takes":       {Takes: make(bourse.Amounts, maxLines+1)},
		"a long name": {Accounts: []bourse.Account{{Resource: bourse.Resource(strings.Repeat("x", maxWord+1))}}},
	} {
		s := quoteCache{timeout: time.Hour, max: 9, workers: map[bourse.WorkerID]*cachedWorker{}}
		s.store(&shape{app: bourse.AppRef{Name: "shop"}}, time.Now(), members(1), []bourse.Quote{q})
		if len(s.workers) != 0 {
			t.Errorf("%s: the quote was cached", name)
		}
	}
}

func TestShapes(t *testing.T) {
	guest := bourse.Guest{}.WithDefaults()
	with := func(r bourse.Requirements) shape {
		return shapeOf(&bourse.Order{App: bourse.App{Name: "shop"}, Config: bourse.Config{Image: "host", Guest: &guest, Requirements: r}})
	}
	a := with(bourse.Requirements{"arch": {Label: "amd64"}, "slots": {Count: 2}})
	if b := with(bourse.Requirements{"slots": {Count: 2}, "arch": {Label: "amd64"}}); a != b {
		t.Errorf("%+v differs from %+v", a, b)
	}
	seen := map[shape]string{a: "the first"}
	for name, r := range map[string]bourse.Requirements{
		"none":                                  nil,
		"one requirement fewer":                 {"arch": {Label: "amd64"}},
		"another count":                         {"arch": {Label: "amd64"}, "slots": {Count: 3}},
		"a label instead of a count":            {"arch": {Label: "amd64"}, "slots": {Label: "2"}},
		"two requirements encoded in one label": {"arch": {Label: `amd64",0;slots="",2;`}},
	} {
		s := with(r)
		if other, known := seen[s]; known {
			t.Errorf("%s has the same shape as %s", name, other)
		}
		seen[s] = name
	}
	long := bourse.Requirements{}
	for i := range 100 {
		long[fmt.Sprintf("label-%d", i)] = bourse.Requirement{Label: "yes"}
	}
	if s := with(long); s != (shape{}) {
		t.Error("an order with too many requirements has a shape")
	}
}
