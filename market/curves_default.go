package market

import "github.com/bourse-dev/bourse"

// DefaultCurves returns a new copy of the curve set that is used if none is configured.
//
// Workers are filled one after the other, in a random but fixed sequence, so that large orders
// still find room later. The curves tend to leave the last tenth of a worker's CPU, memory and disk
// to the machines that are already there. They also avoid stranding resources: GPUs without enough
// CPU and memory to use them, or CPU and memory without each other.
//
// An app's machines are spread. A worker without machines of the app is preferred to a worker with
// one such machine, whatever their position, headroom and stranded resources. Each further machine
// counts more than the position, so the machines are spread evenly.
func DefaultCurves() *CurveSet {
	headroom := []Point{{0.9, 1}, {1, 0.6}}
	lower := []Point{{0, 1}, {1, 0}}
	return &CurveSet{
		Resources: map[bourse.Resource]Curve{
			bourse.ResourceCPU:    {Weight: 1, Points: headroom},
			bourse.ResourceMemory: {Weight: 1, Points: headroom},
			bourse.ResourceDisk:   {Weight: 0.5, Points: headroom},
		},
		Image:    Curve{Weight: 1, Points: []Point{{0, 1}, {1, 0.8}, {10, 0.3}, {60, 0}}},
		Spread:   Curve{Weight: 20, Points: []Point{{0, 1}, {1, 0.84}, {16, 0}}},
		Load:     Curve{Weight: 0.5, Points: []Point{{0, 1}, {1, 0.7}, {2, 0.2}, {4, 0}}},
		Stranded: Curve{Weight: 1, Points: lower},
		Position: Curve{Weight: 1, Points: lower},
		PullRate: 100e6,
	}
}

// Curves contains the curve sets that rank workers. The zero value ranks the workers of every
// region by the default set.
type Curves struct {
	Default *CurveSet                   // for regions without a set of their own; nil: DefaultCurves
	Regions map[bourse.Region]*CurveSet // sets for individual regions
}
