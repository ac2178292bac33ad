package market

import "github.com/bourse-dev/bourse"

// DefaultCurves returns a new copy of the curve set that is used if none is configured.
//
// Resources are packed (best fit): a fuller worker is better, so that there is room for large
// orders later. This applies only up to a certain utilization, because the last tenth is left for
// the machines that are already on the worker. GPUs and countables are packed completely.
//
// The machines of an app are spread. A worker without machines of the app is preferred to a worker
// with one such machine, even if the latter is a much better fit in CPU and memory. Further
// machines count less.
func DefaultCurves() *CurveSet {
	packed := []Point{{0, 0}, {0.9, 1}, {1, 0.6}}
	return &CurveSet{
		Resources: map[bourse.Resource]Curve{
			bourse.ResourceCPU:    {Weight: 1, Points: packed},
			bourse.ResourceMemory: {Weight: 1, Points: packed},
			bourse.ResourceDisk:   {Weight: 0.5, Points: packed},
			AnyGPU:                {Weight: 2, Points: []Point{{0, 0}, {1, 1}}},
			AnyResource:           {Weight: 1, Points: []Point{{0, 0}, {1, 1}}},
		},
		Image:    Curve{Weight: 1, Points: []Point{{0, 1}, {1, 0.8}, {10, 0.3}, {60, 0}}},
		Spread:   Curve{Weight: 5, Points: []Point{{0, 1}, {1, 0.58}, {4, 0.2}, {16, 0}}},
		Load:     Curve{Weight: 0.5, Points: []Point{{0, 1}, {1, 0.7}, {2, 0.2}, {4, 0}}},
		PullRate: 100e6,
	}
}

// Curves contains the curve sets that rank workers. The zero value ranks the workers of every
// region by the default set.
type Curves struct {
	Default *CurveSet                   // for regions without a set of their own; nil: DefaultCurves
	Regions map[bourse.Region]*CurveSet // sets for individual regions
}
