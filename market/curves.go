package market

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/bourse-dev/bourse"
)

// Wildcard keys of CurveSet.Resources, each of which stands for several resources.
const (
	AnyGPU      bourse.Resource = "gpu.*" // all kinds of GPUs without a curve of their own
	AnyResource bourse.Resource = "*"     // all other resources without a curve of their own, which are the operator's countables
)

// CurveSet determines how workers are ranked. It contains a curve for each quantity that is scored. If all weights are
// zero, workers are ranked at random.
type CurveSet struct {
	// Resources contains the curves of resources. A curve is evaluated at the share of the resource, from 0 to 1,
	// that would be in use after the fill. Only the resources that the order needs are scored. If a resource has no
	// curve, the curve of AnyGPU or AnyResource applies. If that curve is missing as well, the resource is not
	// scored.
	Resources map[bourse.Resource]Curve
	// Image is evaluated at the time, in seconds, that it takes to pull the missing part of the image at PullRate.
	Image Curve
	// Spread is evaluated at the number of running machines of the same app on the worker.
	Spread Curve
	// Load is evaluated at the number of runnable tasks per core on the worker.
	Load Curve
	// Stranded is evaluated at the share of the worker's GPUs, from 0 to 1, that would be unusable after the fill
	// because too little CPU or memory is left: the free share of GPUs minus the smaller of the free shares of CPU and
	// memory. For a worker without GPUs, it is evaluated at the difference between the free shares of CPU and memory.
	Stranded Curve
	// Position is evaluated at the worker's position, a number from 0 to 1 that depends only on the worker's and the
	// broker's names. It makes the broker fill similar workers one after the other, so that the last ones remain empty
	// for large orders.
	Position Curve
	// PullRate is the expected rate of image pulls, in bytes per second.
	PullRate float64
}

// Curve is a piecewise-linear function whose values are utilities. It is interpolated between its
// points, and constant before the first point and after the last point. The zero Curve has no
// weight.
type Curve struct {
	Weight float64 `json:"weight"` // weight relative to the other curves' weights; 0 or more
	Points []Point `json:"points"` // sorted by At; may be empty only if the weight is 0
}

// Point is one corner of a curve. Its JSON form is [at, utility].
type Point struct {
	At      float64
	Utility float64 // 0 (worst) to 1 (best)
}

// Limits of a curve set. They ensure that ranking is fast, and that sums of scores are sufficiently accurate.
const (
	maxCurves = 256
	maxPoints = 64
	maxWeight = 1e6
)

// At returns the utility at x, or 0 if x is NaN.
func (c *Curve) At(x float64) float64 {
	if len(c.Points) == 0 || math.IsNaN(x) {
		return 0
	}
	if x <= c.Points[0].At {
		return c.Points[0].Utility
	}
	for i := 1; i < len(c.Points); i++ {
		if b := c.Points[i]; x <= b.At {
			return interpolate(c.Points[i-1], b, x)
		}
	}
	return c.Points[len(c.Points)-1].Utility
}

// interpolate interpolates between two points. It limits the result to b's utility, because otherwise
// rounding errors could make a monotone curve non-monotone at its points.
func interpolate(a, b Point, x float64) float64 {
	y := a.Utility + (b.Utility-a.Utility)*((x-a.At)/(b.At-a.At))
	if a.Utility <= b.Utility {
		return min(y, b.Utility)
	}
	return max(y, b.Utility)
}

// Validate returns CodeInvalid unless the points of c are finite and sorted, and the utilities are
// from 0 to 1.
func (c *Curve) Validate() error {
	switch {
	case !(c.Weight >= 0 && c.Weight <= maxWeight):
		return bourse.Errorf(bourse.CodeInvalid, "weight %g: use 0 to %g", c.Weight, maxWeight)
	case len(c.Points) > maxPoints:
		return bourse.Errorf(bourse.CodeInvalid, "%d points: at most %d", len(c.Points), maxPoints)
	case len(c.Points) == 0 && c.Weight > 0:
		return bourse.Errorf(bourse.CodeInvalid, "a curve with a weight needs at least one point")
	}
	for i, p := range c.Points {
		switch {
		case !(p.Utility >= 0 && p.Utility <= 1):
			return bourse.Errorf(bourse.CodeInvalid, "utility %g: use 0 to 1", p.Utility)
		case !(math.Abs(p.At) <= math.MaxFloat32): // finite, and small enough that the difference of two such values is finite
			return bourse.Errorf(bourse.CodeInvalid, "point at %g is out of range", p.At)
		case i > 0 && p.At <= c.Points[i-1].At:
			return bourse.Errorf(bourse.CodeInvalid, "point at %g does not come after the one at %g", p.At, c.Points[i-1].At)
		}
	}
	return nil
}

// MarshalJSON encodes the point as [at, utility].
func (p Point) MarshalJSON() ([]byte, error) { return json.Marshal([2]float64{p.At, p.Utility}) }

// UnmarshalJSON decodes a point from [at, utility].
func (p *Point) UnmarshalJSON(b []byte) error {
	var pair []float64
	if err := json.Unmarshal(b, &pair); err != nil || len(pair) != 2 {
		return bourse.Errorf(bourse.CodeInvalid, "invalid point %s: use [at, utility]", bourse.Quoted(string(b)))
	}
	p.At, p.Utility = pair[0], pair[1]
	return nil
}

// Validate returns CodeInvalid unless all curves are valid.
func (s *CurveSet) Validate() error {
	if len(s.Resources) > maxCurves {
		return bourse.Errorf(bourse.CodeInvalid, "curves: %d resources, at most %d", len(s.Resources), maxCurves)
	}
	if !(s.PullRate > 0 && s.PullRate <= math.MaxFloat32) {
		return bourse.Errorf(bourse.CodeInvalid, "curves: pull_rate %g: use a positive number of bytes per second", s.PullRate)
	}
	for name, c := range s.all() {
		if err := c.Validate(); err != nil {
			return fmt.Errorf("curve %s: %w", bourse.Quoted(name), err)
		}
	}
	return nil
}

func (s *CurveSet) all() map[string]*Curve {
	all := map[string]*Curve{"image": &s.Image, "spread": &s.Spread, "load": &s.Load, "stranded": &s.Stranded, "position": &s.Position}
	for r, c := range s.Resources {
		all["resources."+string(r)] = &c
	}
	return all
}

// of returns the curve for a resource, or the zero Curve if the resource is not scored.
func (s *CurveSet) of(r bourse.Resource) Curve {
	if c, ok := s.Resources[r]; ok {
		return c
	}
	if strings.HasPrefix(string(r), strings.TrimSuffix(string(AnyGPU), "*")) {
		if c, ok := s.Resources[AnyGPU]; ok {
			return c
		}
	}
	return s.Resources[AnyResource]
}
