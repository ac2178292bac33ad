package sim

import (
	"math"
	"math/rand/v2"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// Policy decides where a scheduler with perfect information places an order.
type Policy struct {
	Name string
	// score rates a worker that has room for the order. The highest score wins. Ties are
	// broken by an arbitrary but fixed order of the workers.
	score scoreFunc
	// gpu selects the GPU for an order that shares a GPU.
	gpu gpuFunc
	// If random is true, the policy selects a random worker among those that have room, and score is not used.
	random bool
	// If curves is set, market.Rank chooses the worker by its quote, using these curves.
	curves *market.Curves
	// If costs is true, workers add the order's cost to their quotes; see [Cost].
	costs bool
}

type (
	scoreFunc func(*Fragments, *Worker, *Shape) float64
	gpuFunc   func(*Fragments, *Worker, *Shape, *rand.Rand) int
)

// Paper returns the policies that the paper on fragmentation gradient descent compares, with the
// parameters of its experiments. Scores are truncated to integers from 0 to 100, as they are in the
// paper's simulator, because this affects how often workers have equal scores.
func Paper() []Policy {
	return []Policy{
		{Name: "Random", random: true, gpu: anyGPU},
		{Name: "DotProd", score: dotProduct, gpu: tightest},
		{Name: "Clustering", score: clustering, gpu: tightest},
		{Name: "Packing", score: packing, gpu: tightest},
		{Name: "BestFit", score: bestFit, gpu: tightest},
		{Name: "FGD", score: gradient, gpu: leastFragmenting},
	}
}

// Bourse returns the policies that rank all workers with market.Rank.
func Bourse() []Policy {
	return []Policy{
		{Name: "Bourse", curves: &market.Curves{}, gpu: tightest},
		{Name: "Bourse, FGD in quotes", curves: &market.Curves{Default: costCurves()}, costs: true, gpu: leastFragmenting},
	}
}

// costCurves returns curves that score quotes by their costs and by the workers' positions (see market.CurveSet). The
// largest possible difference between two positions is equivalent to a cost of one GPU.
func costCurves() *market.CurveSet {
	lower := []market.Point{{At: 0, Utility: 1}, {At: 1, Utility: 0}}
	return &market.CurveSet{
		Resources: map[bourse.Resource]market.Curve{Cost: {Weight: costScale / 1e6, Points: lower}},
		Position:  market.Curve{Weight: 1, Points: lower},
		PullRate:  market.DefaultCurves().PullRate,
	}
}

// Capacities of the largest host. The policies divide amounts by these capacities to normalize them.
const (
	mostCPU = 128000
	mostGPU = maxGPUs * WholeGPU
)

// dotProduct prefers the worker whose free resources are least aligned with the order (Tetris,
// SIGCOMM 2014, as in the paper's simulator).
func dotProduct(_ *Fragments, w *Worker, s *Shape) float64 {
	product := float64(w.freeCPU())/mostCPU*float64(s.CPU)/mostCPU + float64(w.freeGPU())/mostGPU*float64(s.GPU())/mostGPU
	return math.Trunc(100 * (1 - product/2))
}

// clustering prefers a worker whose GPU machines all have as many GPUs as the order requests, then a
// worker where only some of them do, then a worker without GPU machines (Gandiva, OSDI 2018).
func clustering(_ *Fragments, w *Worker, s *Shape) float64 {
	if s.GPUs == 0 {
		return 0
	}
	kinds := 0
	for _, n := range w.kinds {
		kinds += min(n, 1)
	}
	base := 0
	switch same := w.kinds[kindOf(s)] > 0; {
	case same && kinds == 1:
		base = 75
	case same:
		base = 50
	case kinds == 0:
		base = 25
	}
	return float64(25*(mostGPU-w.freeGPU())/mostGPU + base)
}

// packing prefers GPUs that are partly used, then idle GPUs of busy workers, then idle workers
// with few GPUs (MLaaS in the wild, NSDI 2022).
func packing(_ *Fragments, w *Worker, s *Shape) float64 {
	idle := w.roomy(WholeGPU)
	if s.GPUs == 0 {
		return 0
	}
	if idle == w.Host.GPUs {
		return float64(max(100/3-idle, idle))
	}
	gpu := tightest(nil, w, s, nil)
	switch free := int(w.free[gpu]); {
	case !s.shared():
		return float64(max(100/2-s.GPUs, 100/3))
	case free == WholeGPU:
		return 100/2 - 1
	default:
		return float64(max(100-free*100/WholeGPU/10, 100/2))
	}
}

// bestFit prefers the worker with the fewest free resources, weighting CPU and GPUs equally.
func bestFit(_ *Fragments, w *Worker, s *Shape) float64 {
	return math.Trunc(100 * (1 - slack(w, s)/2))
}

// slack returns the CPU and GPUs that an order would leave free on a worker, relative to the
// largest host.
func slack(w *Worker, s *Shape) float64 {
	return float64(w.freeCPU()-int64(s.CPU))/mostCPU + float64(w.freeGPU()-s.GPU())/mostGPU
}

// gradient is fragmentation gradient descent: it prefers the worker whose fragmentation increases
// the least.
func gradient(f *Fragments, w *Worker, s *Shape) float64 {
	more, _ := f.increase(w, s)
	return math.Trunc(100 / (1 + math.Exp(more/1000)))
}

// leastFragmenting returns the GPU on which the order increases fragmentation the least.
func leastFragmenting(f *Fragments, w *Worker, s *Shape, _ *rand.Rand) int {
	_, gpu := f.increase(w, s)
	return gpu
}

// tightest returns the GPU on which the order would leave the least capacity free.
func tightest(_ *Fragments, w *Worker, s *Shape, _ *rand.Rand) int {
	best := -1
	for i, free := range w.free[:w.Host.GPUs] {
		if int(free) >= s.Share && (best < 0 || free < w.free[best]) {
			best = i
		}
	}
	return max(best, 0)
}

// anyGPU returns a random GPU with enough room.
func anyGPU(_ *Fragments, w *Worker, s *Shape, rng *rand.Rand) int {
	best, n := 0, 0
	for i, free := range w.free[:w.Host.GPUs] {
		if int(free) >= s.Share {
			if n++; rng.IntN(n) == 0 {
				best = i
			}
		}
	}
	return best
}
