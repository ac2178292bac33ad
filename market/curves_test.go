package market_test

import (
	"math"
	"testing"

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
