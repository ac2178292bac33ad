package market_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// always returns policies that rank all workers by a set of curves.
func always(set *market.CurveSet) func() *market.Policies {
	p := market.NewPolicies(map[bourse.Region]*market.Policy{market.AllRegions: {Name: "test", Curves: set}}, nil)
	return func() *market.Policies { return p }
}

func policy(t testing.TB, text string) *market.Policy {
	t.Helper()
	p, err := market.ParsePolicy([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPolicyKeepsTheCurvesOfItsBase checks that a policy uses its base's curves for those that the document omits.
func TestPolicyKeepsTheCurvesOfItsBase(t *testing.T) {
	got := policy(t, `{"name": "p", "curves": {"load": {"weight": 3, "points": [[0, 1], [2, 0]]}, "resources": {"slots": {"weight": 1, "points": [[0, 1]]}}}}`)
	want := market.DefaultCurves()
	want.Load = market.Curve{Weight: 3, Points: []market.Point{{0, 1}, {2, 0}}}
	want.Resources["slots"] = market.Curve{Weight: 1, Points: []market.Point{{0, 1}}}
	if diff := cmp.Diff(want, got.Curves); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
}

// TestAPolicysVersionFollowsItsContent checks that white space does not change the version, and that
// any other change does.
func TestAPolicysVersionFollowsItsContent(t *testing.T) {
	a, b := policy(t, `{"name":"p","base":"spread"}`), policy(t, "{\n\t\"name\": \"p\", \"base\": \"spread\" }\n")
	if a.Version != b.Version || len(a.Version) != 12 || !bytes.Equal(a.Text, b.Text) {
		t.Errorf("the same policy has versions %s and %s", a, b)
	}
	if c := policy(t, `{"name":"p","base":"random"}`); c.Version == a.Version {
		t.Errorf("two policies have the version %s", c)
	}
}

func TestInvalidPolicies(t *testing.T) {
	curves := func(text string) string { return `{"name": "p", "curves": ` + text + `}` }
	for name, text := range map[string]string{
		"nothing":                "",
		"not an object":          `[]`,
		"no name":                `{}`,
		"name is not a label":    `{"name": "Packed Tightly"}`,
		"unknown base":           `{"name": "p", "base": "best"}`,
		"unknown field":          `{"name": "p", "curve": {}}`,
		"two documents":          `{"name": "p"} {"name": "q"}`,
		"not UTF-8":              "{\"name\": \"p\", \"curves\": {\"resources\": {\"\xff\": {\"weight\": 0}}}}",
		"too large":              `{"name": "p"` + strings.Repeat(" ", 1<<20) + `}`,
		"unknown curve":          curves(`{"color": {"weight": 1, "points": [[0, 1]]}}`),
		"negative weight":        curves(`{"load": {"weight": -1, "points": [[0, 1]]}}`),
		"enormous weight":        curves(`{"load": {"weight": 1e300, "points": [[0, 1]]}}`),
		"weight without a point": curves(`{"load": {"weight": 1}}`),
		"half a point":           curves(`{"load": {"weight": 1, "points": [[0]]}}`),
		"point is a word":        curves(`{"load": {"weight": 1, "points": ["here"]}}`),
		"points out of order":    curves(`{"load": {"weight": 1, "points": [[1, 1], [0, 1]]}}`),
		"two values at a point":  curves(`{"load": {"weight": 1, "points": [[1, 1], [1, 0]]}}`),
		"utility above 1":        curves(`{"load": {"weight": 1, "points": [[0, 1.1]]}}`),
		"utility below 0":        curves(`{"load": {"weight": 1, "points": [[0, -0.1]]}}`),
		"point out of range":     curves(`{"load": {"weight": 1, "points": [[1e300, 1]]}}`),
		"pull rate 0":            curves(`{"pull_rate": 0}`),
		"one resource is bad":    curves(`{"resources": {"slots": {"weight": 1}}}`),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := market.ParsePolicy([]byte(text))
			fails(t, err, bourse.CodeInvalid)
			if len(err.Error()) > 512 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// TestBases checks which worker each base prefers.
func TestBases(t *testing.T) {
	for _, base := range []string{"", "default"} {
		if diff := cmp.Diff(market.DefaultCurves(), policy(t, `{"name":"p","base":"`+base+`"}`).Curves); diff != "" {
			t.Errorf("base %q (-want +got):\n%s", base, diff)
		}
	}
	for base, want := range map[string]bourse.WorkerID{"best-fit": "brim", "spread": "empty"} {
		quotes := []bourse.Quote{quote("empty", 0, 0), quote("knee", 85_000, 85_000), quote("brim", 98_000, 98_000)}
		o := order("gru")
		if got := rank(&o, quotes, &market.Curves{Default: policy(t, `{"name":"p","base":"`+base+`"}`).Curves}, 1); got[0] != want {
			t.Errorf("base %q ranks %v, want %s first", base, got, want)
		}
	}
	first := map[bourse.WorkerID]bool{}
	random := market.Curves{Default: policy(t, `{"name":"p","base":"random"}`).Curves}
	for seed := range uint64(100) {
		o := order("gru")
		first[rank(&o, []bourse.Quote{quote("empty", 0, 0), quote("knee", 85_000, 85_000)}, &random, seed)[0]] = true
	}
	if len(first) != 2 {
		t.Errorf("the random policy always prefers %v", first)
	}
}

// TestTheRegionsPolicyCounts checks which policy and which shadow policy apply to a region, and that the decision names
// them.
func TestTheRegionsPolicyCounts(t *testing.T) {
	packed, spread, random := policy(t, `{"name":"packed","base":"best-fit"}`), policy(t, `{"name":"spread","base":"spread"}`), policy(t, `{"name":"random","base":"random"}`)
	type use = map[bourse.Region]*market.Policy
	for name, test := range map[string]struct {
		rank, shadow use
		policy       string // of the ranking in gru
		shadowed     string // shadow policy in gru
		best, other  bourse.WorkerID
	}{
		"none":                                  {nil, nil, "", "", "full", ""},
		"for all regions":                       {use{"": spread}, use{"": packed}, spread.String(), packed.String(), "empty", "full"},
		"the region's own counts":               {use{"": spread, "gru": packed}, use{"": random, "gru": spread}, packed.String(), spread.String(), "full", "empty"},
		"another region's does not":             {use{"": packed, "mad": spread}, use{"mad": spread}, packed.String(), "", "full", ""},
		"the shadow of all regions counts":      {use{"gru": spread}, use{"": packed}, spread.String(), packed.String(), "empty", "full"},
		"a shadow that agrees names the worker": {use{"gru": packed}, use{"gru": packed}, packed.String(), packed.String(), "full", "full"},
		"a shadow without a preference agrees":  {use{"gru": packed}, use{"gru": random}, packed.String(), random.String(), "full", "full"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(Spec{ID: "empty", Region: "gru", Total: room(1000)}, Spec{ID: "full", Region: "gru", Total: room(10)})
			policies := market.NewPolicies(test.rank, test.shadow)
			x := broker(c, func(cfg *market.Config) { cfg.Policies = func() *market.Policies { return policies } })
			d, err := x.Quote(t.Context(), order("gru"))
			if err != nil {
				t.Fatal(err)
			}
			round := d.Rounds[0]
			if r := round.Ranked[0]; r.Worker != test.best || r.Policy != test.policy {
				t.Errorf("%s ranked %s first, want %s by %s", r.Policy, r.Worker, test.best, test.policy)
			}
			switch s := round.Shadow; {
			case test.shadowed == "" && s != nil:
				t.Errorf("compared with %+v", s)
			case test.shadowed == "":
			case s == nil:
				t.Error("not compared")
			case s.Policy != test.shadowed || s.Worker != test.other || (s.Gain > 0) != (test.other != test.best):
				t.Errorf("compared with %+v, want %s to prefer %s", s, test.shadowed, test.other)
			}
			if len(x.Comparisons()) != 0 {
				t.Errorf("a quote was counted: %+v", x.Comparisons())
			}
		})
	}
}

// TestAShadowChangesNothing places the same orders with and without a shadow policy. Given the same
// seed, they must be filled on the same workers. The comparison must have the differences that the
// decisions contain.
func TestAShadowChangesNothing(t *testing.T) {
	fill := func(shadow *market.Policy) (at []bourse.WorkerID, x *market.Exchange, decisions []bourse.Decision) {
		c := floor(12, room(20))
		ties := map[bourse.Region]*market.Policy{"gru": policy(t, `{"name":"ties","base":"random","curves":{"spread":{"weight":1,"points":[[0,1],[2,0]]}}}`)}
		policies := market.NewPolicies(ties, nil)
		if shadow != nil {
			policies = market.NewPolicies(ties, map[bourse.Region]*market.Policy{"gru": shadow})
		}
		x = broker(c, func(cfg *market.Config) { cfg.Policies = func() *market.Policies { return policies } })
		for range 60 {
			fill, d, err := x.Place(t.Context(), order("gru"))
			if err != nil {
				t.Fatal(err)
			}
			at, decisions = append(at, fill.Machine.Worker), append(decisions, d)
		}
		return at, x, decisions
	}
	want, x, _ := fill(nil)
	if len(x.Comparisons()) != 0 {
		t.Errorf("compared without a shadow policy: %+v", x.Comparisons())
	}
	shadow := policy(t, `{"name":"packed","base":"best-fit"}`)
	got, x, decisions := fill(shadow)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the shadow policy changed where orders are filled (-want +got):\n%s", diff)
	}
	sum := market.Comparison{Region: "gru", Ranking: decisions[0].Rounds[0].Ranked[0].Policy, Policy: shadow.String()}
	for _, d := range decisions {
		s := d.Rounds[0].Shadow
		if s == nil {
			t.Fatalf("order %s was not compared", d.Order)
		}
		sum.Orders++
		if s.Gain > 0 {
			sum.Differing++
		}
		if (s.Worker == d.Rounds[0].Ranked[0].Worker) != (s.Gain == 0) {
			t.Errorf("the shadow prefers %s by %g, and %s was ranked first", s.Worker, s.Gain, d.Rounds[0].Ranked[0].Worker)
		}
		sum.Gain += s.Gain / float64(len(decisions))
	}
	if sum.Differing == 0 {
		t.Error("the policies never differ")
	}
	near := cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })
	if diff := cmp.Diff([]market.Comparison{sum}, x.Comparisons(), near); diff != "" {
		t.Errorf("comparison (-want +got):\n%s", diff)
	}
}

// TestAComparisonBeginsWithItsPolicies checks that a comparison does not include orders that were compared under
// earlier policies.
func TestAComparisonBeginsWithItsPolicies(t *testing.T) {
	c := floor(3, room(100))
	policies := market.NewPolicies(nil, nil)
	x := broker(c, func(cfg *market.Config) { cfg.Policies = func() *market.Policies { return policies } })
	use := func(rank, shadow *market.Policy) {
		in := func(p *market.Policy) map[bourse.Region]*market.Policy {
			if p == nil {
				return nil
			}
			return map[bourse.Region]*market.Policy{market.AllRegions: p}
		}
		policies = market.NewPolicies(in(rank), in(shadow))
	}
	first, second := policy(t, `{"name":"a"}`), policy(t, `{"name":"b"}`)
	for _, step := range []struct {
		rank, use *market.Policy
		want      int
	}{{nil, first, 1}, {nil, first, 2}, {nil, second, 1}, {nil, first, 1}, {second, first, 1}, {second, first, 2}, {nil, first, 1}} {
		use(step.rank, step.use)
		if _, _, err := x.Place(t.Context(), order("gru")); err != nil {
			t.Fatal(err)
		}
		if got := x.Comparisons(); len(got) != 1 || got[0].Orders != step.want || got[0].Policy != step.use.String() {
			t.Errorf("compared %+v, want %d orders with %s", got, step.want, step.use)
		}
	}
	use(nil, second)
	if got := x.Comparisons(); len(got) != 0 {
		t.Errorf("compared with a policy that was just set: %+v", got)
	}
}

func FuzzParsePolicy(f *testing.F) {
	f.Add([]byte(`{"name": "p"}`), 0.5)
	f.Add([]byte(`{"name": "p", "base": "random", "curves": {"load": {"weight": 3, "points": [[0, 1], [2, 0]]}}}`), 1.0)
	f.Add([]byte(`{"name": "p", "base": "best-fit", "curves": {"resources": {"*": {"weight": 0.1, "points": [[-3, 0], [1e-300, 1], [7, 0.2]]}}, "pull_rate": 1e-9}}`), -1.0)
	f.Fuzz(func(t *testing.T, text []byte, x float64) {
		p, err := market.ParsePolicy(text)
		if err != nil {
			if bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("error %v", err)
			}
			return
		}
		if err := p.Curves.Validate(); err != nil {
			t.Fatalf("decoded, but invalid: %v", err)
		}
		if y := p.Curves.Load.At(x); !(y >= 0 && y <= 1) {
			t.Errorf("load at %g is %g", x, y)
		}
		again, err := market.ParsePolicy(p.Text)
		if err != nil || again.Version != p.Version || !json.Valid(p.Text) {
			t.Errorf("%s decodes as %v, %v", p, again, err)
		}
		o := order("gru")
		q := []bourse.Quote{quote("a", 0, 0), quote("b", 50_000, 90_000)}
		for _, r := range market.Rank(&o, q, &market.Curves{Default: p.Curves}, "b", rand.New(rand.NewPCG(1, 1)), nil) {
			if !(r.Score >= 0 && r.Score <= 1+1e-9) {
				t.Errorf("score %g", r.Score)
			}
		}
	})
}
