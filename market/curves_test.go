package market_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

func TestCurveAt(t *testing.T) {
	c := market.Curve{Weight: 1, Points: []market.Point{{At: 0, Utility: 0.2}, {At: 1, Utility: 1}, {At: 3, Utility: 0}}}
	for x, want := range map[float64]float64{
		-5: 0.2, 0: 0.2, 0.5: 0.6, 1: 1, 2: 0.5, 3: 0, 99: 0, math.Inf(1): 0, math.Inf(-1): 0.2,
	} {
		if got := c.At(x); math.Abs(got-want) > 1e-12 {
			t.Errorf("at %g: %g, want %g", x, got, want)
		}
	}
	if got := c.At(math.NaN()); got != 0 {
		t.Errorf("at NaN: %g, want 0", got)
	}
	if got := new(market.Curve).At(1); got != 0 {
		t.Errorf("a curve without points gives %g", got)
	}
}

func TestDefaultCurvesAreValid(t *testing.T) {
	if err := market.DefaultCurves().Validate(); err != nil {
		t.Error(err)
	}
}

// TestCurveSetJSON checks that curves that a document omits are those of the default set, and that
// encoding and decoding a set does not change it.
func TestCurveSetJSON(t *testing.T) {
	var got market.CurveSet
	if err := json.Unmarshal([]byte(`{"load": {"weight": 3, "points": [[0, 1], [2, 0]]}, "resources": {"slots": {"weight": 1, "points": [[0, 1]]}}}`), &got); err != nil {
		t.Fatal(err)
	}
	want := market.DefaultCurves()
	want.Load = market.Curve{Weight: 3, Points: []market.Point{{0, 1}, {2, 0}}}
	want.Resources["slots"] = market.Curve{Weight: 1, Points: []market.Point{{0, 1}}}
	if diff := cmp.Diff(want, &got); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
	text, err := json.Marshal(&got)
	if err != nil {
		t.Fatal(err)
	}
	var again market.CurveSet
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("decoded again (-want +got):\n%s", diff)
	}
}

func TestInvalidCurves(t *testing.T) {
	for name, text := range map[string]string{
		"not an object":          `[]`,
		"unknown curve":          `{"color": {"weight": 1, "points": [[0, 1]]}}`,
		"negative weight":        `{"load": {"weight": -1, "points": [[0, 1]]}}`,
		"enormous weight":        `{"load": {"weight": 1e300, "points": [[0, 1]]}}`,
		"weight without a point": `{"load": {"weight": 1}}`,
		"half a point":           `{"load": {"weight": 1, "points": [[0]]}}`,
		"point is a word":        `{"load": {"weight": 1, "points": ["here"]}}`,
		"points out of order":    `{"load": {"weight": 1, "points": [[1, 1], [0, 1]]}}`,
		"two values at a point":  `{"load": {"weight": 1, "points": [[1, 1], [1, 0]]}}`,
		"utility above 1":        `{"load": {"weight": 1, "points": [[0, 1.1]]}}`,
		"utility below 0":        `{"load": {"weight": 1, "points": [[0, -0.1]]}}`,
		"point out of range":     `{"load": {"weight": 1, "points": [[1e300, 1]]}}`,
		"pull rate 0":            `{"pull_rate": 0}`,
		"one resource is bad":    `{"resources": {"slots": {"weight": 1}}}`,
		"all weights are 0": `{"load": {"weight": 0}, "image": {"weight": 0}, "spread": {"weight": 0}, "resources": {
			"cpu": {"weight": 0}, "memory": {"weight": 0}, "disk": {"weight": 0}, "gpu.*": {"weight": 0}, "*": {"weight": 0}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			var set market.CurveSet
			fails(t, json.Unmarshal([]byte(text), &set), bourse.CodeInvalid)
		})
	}
}

func TestCurvesValidate(t *testing.T) {
	bad := market.DefaultCurves()
	bad.PullRate = -1
	for name, curves := range map[string]market.Curves{
		"bad default":             {Default: bad},
		"bad curves for a region": {Regions: map[bourse.Region]*market.CurveSet{"gru": bad}},
		"invalid region":          {Regions: map[bourse.Region]*market.CurveSet{"G R U": nil}},
	} {
		t.Run(name, func(t *testing.T) { fails(t, curves.Validate(), bourse.CodeInvalid) })
	}
	good := market.Curves{Default: market.DefaultCurves(), Regions: map[bourse.Region]*market.CurveSet{"gru": market.DefaultCurves(), "mad": nil}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}

func FuzzCurveSet(f *testing.F) {
	f.Add([]byte(`{}`), 0.5)
	f.Add([]byte(`{"load": {"weight": 3, "points": [[0, 1], [2, 0]]}}`), 1.0)
	f.Add([]byte(`{"resources": {"*": {"weight": 0.1, "points": [[-3, 0], [1e-300, 1], [7, 0.2]]}}, "pull_rate": 1e-9}`), math.Inf(1))
	f.Fuzz(func(t *testing.T, text []byte, x float64) {
		var set market.CurveSet
		if json.Unmarshal(text, &set) != nil {
			return
		}
		if err := set.Validate(); err != nil {
			t.Fatalf("decoded, but invalid: %v", err)
		}
		if y := set.Load.At(x); !(y >= 0 && y <= 1) {
			t.Errorf("load at %g is %g", x, y)
		}
		if c, ok := set.Resources[market.AnyResource]; ok {
			if y := c.At(x); !(y >= 0 && y <= 1) {
				t.Errorf("* at %g is %g", x, y)
			}
		}
		if _, err := json.Marshal(&set); err != nil {
			t.Errorf("encode: %v", err)
		}
	})
}
