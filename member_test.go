package bourse_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"

	"github.com/bourse-dev/bourse"
)

// TestMayHaveFilled checks that MayHaveFilled returns false only for orders that were created after
// the worker became absent. It must return true if the time in an order's ID is implausible.
func TestMayHaveFilled(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	lost := bourse.Absence{Since: now.Add(-time.Minute)}
	for name, c := range map[string]struct {
		born time.Time
		want bool
	}{
		"before":            {now.Add(-time.Hour), true},
		"the same moment":   {lost.Since, true},
		"a little later":    {lost.Since.Add(bourse.MaxSkew), true}, // the clocks may differ
		"later":             {lost.Since.Add(bourse.MaxSkew + time.Millisecond), false},
		"just now":          {now, false},
		"a little ahead":    {now.Add(bourse.MaxSkew), false},
		"in the far future": {now.Add(bourse.MaxSkew + time.Millisecond), true},
	} {
		id := bourse.OrderID(ulid.MustNew(ulid.Timestamp(c.born), ulid.DefaultEntropy()).String())
		if got := lost.MayHaveFilled(id, now); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
	if !lost.MayHaveFilled("no id", now) {
		t.Error("an order with a malformed ID: got false, want true")
	}
	if lost.Lost(now) || !lost.Lost(lost.Since.Add(bourse.LostAfter+1)) {
		t.Error("a worker must count as lost after LostAfter, and not before")
	}
}

// codeIs fails the test unless err has the code want. "" means no error.
func codeIs(t testing.TB, err error, want bourse.Code) {
	t.Helper()
	if got := bourse.CodeOf(err); got != want {
		t.Errorf("got code %q, want %q; error: %v", got, want, err)
	}
}

func TestParseRegions(t *testing.T) {
	known := []bourse.Region{"ams", "gru", "lhr", "mad", "rack-1"}
	for expression, want := range map[string][]bourse.Choice{
		"gru":             {{"gru"}},
		" GRU , mad ":     {{"gru"}, {"mad"}},
		"gru,gru":         {{"gru"}},
		"any":             {known},
		"":                {known},
		"  ":              {known},
		"gru,any":         {{"gru"}, {"ams", "lhr", "mad", "rack-1"}},
		"eu":              {{"ams", "lhr", "mad"}},
		"lhr,eu":          {{"lhr"}, {"ams", "mad"}},
		"eu,lhr":          {{"ams", "lhr", "mad"}},
		"us,sa":           {{"gru"}}, // an alias without existing regions is skipped
		"rack-1":          {{"rack-1"}},
		"any,gru":         {known},
		"mad,sa,eu,any":   {{"mad"}, {"gru"}, {"ams", "lhr"}, {"rack-1"}},
		"eu,\tgru\n,apac": {{"ams", "lhr", "mad"}, {"gru"}},
	} {
		got, err := bourse.ParseRegions(expression, known)
		if err != nil {
			t.Errorf("%q: %v", expression, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", expression, diff)
		}
	}
}

func TestParseRegionsRefuses(t *testing.T) {
	known := []bourse.Region{"gru", "mad"}
	for expression, text := range map[string]string{
		"nrt":                      "the available regions are gru, mad",
		"gru,nrt":                  `unknown region "nrt"`,
		"us":                       "no region matches",
		"gru,":                     `region ""`,
		",":                        `region ""`,
		"g r u":                    "short code",
		"gru/../mad":               "short code",
		"gru\x00":                  `\x00`,
		"1gru":                     "short code",
		strings.Repeat("x", 33):    "short code",
		strings.Repeat("x", 10000): "…",
		strings.Repeat("gru,", 64): "65 entries",
	} {
		_, err := bourse.ParseRegions(expression, known)
		codeIs(t, err, bourse.CodeInvalid)
		if err != nil && (!strings.Contains(err.Error(), text) || len(err.Error()) > 300) {
			t.Errorf("%.40q: %q, want %q in it", expression, err, text)
		}
	}
	_, err := bourse.ParseRegions("", nil)
	codeIs(t, err, bourse.CodeInvalid)
}

func TestAliasIsNoRegion(t *testing.T) {
	for _, r := range []bourse.Region{"any", "eu", "us", "usa", "na", "sa", "apac", "", "Gru", "-gru"} {
		codeIs(t, r.Validate(), bourse.CodeInvalid)
	}
	codeIs(t, bourse.Region("gru").Validate(), "")
}

func FuzzParseRegions(f *testing.F) {
	for _, seed := range []string{"", "gru", "lhr,eu", "any", ",,", "EU , gru", "gru\x00", strings.Repeat("gru,", 70)} {
		f.Add(seed)
	}
	known := []bourse.Region{"ams", "gru", "lhr", "mad", "zz9"}
	f.Fuzz(func(t *testing.T, expression string) {
		choices, err := bourse.ParseRegions(expression, known)
		if err != nil {
			codeIs(t, err, bourse.CodeInvalid)
			return
		}
		if len(choices) == 0 {
			t.Fatal("got neither a choice nor an error")
		}
		seen := map[bourse.Region]bool{}
		for _, choice := range choices {
			if len(choice) == 0 {
				t.Fatal("got an empty choice")
			}
			for _, r := range choice {
				if seen[r] || !slices.Contains(known, r) {
					t.Fatalf("%s is named twice or unknown", r)
				}
				seen[r] = true
			}
		}
	})
}
