package market

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"

	"github.com/bourse-dev/bourse"
)

// Keys of CurveSet.Resources that mean many resources.
const (
	AnyGPU      bourse.Resource = "gpu.*" // every kind of gpu without a curve of its own
	AnyResource bourse.Resource = "*"     // everything else: the operator's countables
)

// CurveSet defines how good a worker is for an order: a curve for each quantity
// that is ranked by. Its JSON names the curves that differ from the default
// set, each of them in full.
type CurveSet struct {
	// Resources are asked at the share of the resource, 0 to 1, that would be
	// in use after the fill. Only what the order takes is looked at. A
	// resource without a curve here falls to AnyGPU or AnyResource, and
	// without those it does not count.
	Resources map[bourse.Resource]Curve `json:"resources"`
	// Image is asked at the seconds that pulling the missing part of the
	// image would take at PullRate.
	Image Curve `json:"image"`
	// Spread is asked at the number of living machines of the same app there.
	Spread Curve `json:"spread"`
	// Load is asked at the runnable tasks per core.
	Load Curve `json:"load"`
	// PullRate is the expected rate of an image pull, in bytes per second.
	PullRate float64 `json:"pull_rate"`
}

// Curve is a piecewise-linear utility: between two points it is interpolated,
// outside them it is level. The zero Curve does not count.
type Curve struct {
	Weight float64 `json:"weight"` // relative to the other curves; 0 or more
	Points []Point `json:"points"` // by ascending At; at least one unless the weight is 0
}

// Point is one corner of a curve; JSON writes it as [at, utility].
type Point struct {
	At      float64
	Utility float64 // 0 (worst) to 1 (best)
}

// Bounds of a curve set: what keeps sums of scores exact enough and the
// ranking fast.
const (
	maxCurves     = 256
	maxPoints     = 64
	maxWeight     = 1e6
	maxCurveBytes = 1 << 20
)

// At returns the curve's utility at x, 0 for NaN.
func (c *Curve) At(x float64) float64 {
	if len(c.Points) == 0 || math.IsNaN(x) {
		return 0
	}
	if x <= c.Points[0].At {
		return c.Points[0].Utility
	}
	for i := 1; i < len(c.Points); i++ {
		if b := c.Points[i]; x <= b.At {
			return between(c.Points[i-1], b, x)
		}
	}
	return c.Points[len(c.Points)-1].Utility
}

// between interpolates. Rounding must not overshoot b, or a monotone curve
// would not be one at its corners.
func between(a, b Point, x float64) float64 {
	y := a.Utility + (b.Utility-a.Utility)*((x-a.At)/(b.At-a.At))
	if a.Utility <= b.Utility {
		return min(y, b.Utility)
	}
	return max(y, b.Utility)
}

// Validate reports CodeInvalid unless c is a function with finite corners and
// utilities of 0 to 1.
func (c *Curve) Validate() error {
	switch {
	case !(c.Weight >= 0 && c.Weight <= maxWeight):
		return bourse.Errorf(bourse.CodeInvalid, "weight %g: use 0 to %g", c.Weight, maxWeight)
	case len(c.Points) > maxPoints:
		return bourse.Errorf(bourse.CodeInvalid, "%d points: at most %d", len(c.Points), maxPoints)
	case len(c.Points) == 0 && c.Weight > 0:
		return bourse.Errorf(bourse.CodeInvalid, "a curve with a weight needs a point")
	}
	for i, p := range c.Points {
		switch {
		case !(p.Utility >= 0 && p.Utility <= 1):
			return bourse.Errorf(bourse.CodeInvalid, "utility %g: use 0 to 1", p.Utility)
		case !(math.Abs(p.At) <= math.MaxFloat32): // finite, and so are differences
			return bourse.Errorf(bourse.CodeInvalid, "point at %g is out of range", p.At)
		case i > 0 && p.At <= c.Points[i-1].At:
			return bourse.Errorf(bourse.CodeInvalid, "point at %g does not come after the one at %g", p.At, c.Points[i-1].At)
		}
	}
	return nil
}

// MarshalJSON writes [at, utility].
func (p Point) MarshalJSON() ([]byte, error) { return json.Marshal([2]float64{p.At, p.Utility}) }

// UnmarshalJSON reads [at, utility].
func (p *Point) UnmarshalJSON(b []byte) error {
	var pair []float64
	if err := json.Unmarshal(b, &pair); err != nil || len(pair) != 2 {
		return bourse.Errorf(bourse.CodeInvalid, "invalid point %s: use [at, utility]", bourse.Quoted(string(b)))
	}
	p.At, p.Utility = pair[0], pair[1]
	return nil
}

// UnmarshalJSON lays the curves of a document over the default set and
// validates the result. Unknown fields are CodeInvalid.
func (s *CurveSet) UnmarshalJSON(b []byte) error {
	var doc struct {
		Resources map[bourse.Resource]Curve `json:"resources"`
		Image     *Curve                    `json:"image"`
		Spread    *Curve                    `json:"spread"`
		Load      *Curve                    `json:"load"`
		PullRate  *float64                  `json:"pull_rate"`
	}
	if len(b) > maxCurveBytes {
		return bourse.Errorf(bourse.CodeInvalid, "curves: %d bytes, at most %d", len(b), maxCurveBytes)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "curves: %w", err)
	}
	set := DefaultCurves()
	maps.Copy(set.Resources, doc.Resources)
	overlay(&set.Image, doc.Image)
	overlay(&set.Spread, doc.Spread)
	overlay(&set.Load, doc.Load)
	overlay(&set.PullRate, doc.PullRate)
	if err := set.Validate(); err != nil {
		return err
	}
	*s = *set
	return nil
}

func overlay[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// Validate reports CodeInvalid unless every curve is a function and at least
// one of them counts.
func (s *CurveSet) Validate() error {
	if len(s.Resources) > maxCurves {
		return bourse.Errorf(bourse.CodeInvalid, "curves: %d resources, at most %d", len(s.Resources), maxCurves)
	}
	if !(s.PullRate > 0 && s.PullRate <= math.MaxFloat32) {
		return bourse.Errorf(bourse.CodeInvalid, "curves: pull_rate %g: use a positive number of bytes per second", s.PullRate)
	}
	weight := 0.0
	for name, c := range s.all() {
		if err := c.Validate(); err != nil {
			return fmt.Errorf("curve %s: %w", bourse.Quoted(name), err)
		}
		weight += c.Weight
	}
	if weight == 0 {
		return bourse.Errorf(bourse.CodeInvalid, "curves: none has a weight")
	}
	return nil
}

func (s *CurveSet) all() map[string]*Curve {
	all := map[string]*Curve{"image": &s.Image, "spread": &s.Spread, "load": &s.Load}
	for r, c := range s.Resources {
		all["resources."+string(r)] = &c
	}
	return all
}

// of returns the curve for a resource, the zero one when it does not count.
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
