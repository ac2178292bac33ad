package sim_test

import (
	"math"
	"testing"

	"github.com/bourse-dev/bourse/sim"
)

// figures returns the figures at a load of 100 %, averaged over the first n of the paper's seeds.
func figures(t *testing.T, workload string, p *sim.Policy, n int) sim.Figure {
	t.Helper()
	trace, err := sim.Openb(workload)
	if err != nil {
		t.Fatal(err)
	}
	return sim.Mean(trace, p, n)[100]
}

// TestPublishedFigures checks that the lab reproduces the published results of best fit and of
// fragmentation gradient descent. The seeds generate the same orders as in the paper's simulator,
// but workers are considered in a different order.
func TestPublishedFigures(t *testing.T) {
	const seeds = 4
	for _, p := range sim.Paper() {
		if p.Name != "BestFit" && p.Name != "FGD" {
			continue
		}
		got, want := figures(t, "default", &p, seeds), sim.Figure{}
		published, err := sim.Published("default")
		if err != nil {
			t.Fatal(err)
		}
		for seed := range int64(seeds) {
			f := published[p.Name][sim.FirstSeed+seed]
			want.Allocated += f.Allocated / seeds
			want.Fragmented += f.Fragmented / seeds
		}
		if math.Abs(got.Allocated-want.Allocated) > 0.3 || math.Abs(got.Fragmented-want.Fragmented) > 0.3 {
			t.Errorf("%s: got %.2f, published %.2f", p.Name, got, want)
		}
	}
}

// TestRankingIsNoWorseThanFGD guards the production ranking: with the default curves, market.Rank must
// reach the published figure of fragmentation gradient descent.
func TestRankingIsNoWorseThanFGD(t *testing.T) {
	production := sim.Bourse()[0]
	if got := figures(t, "default", &production, 2); got.Allocated < 95.2 {
		t.Errorf("allocated %.2f %% of the GPUs, want at least 95.2", got.Allocated)
	}
}

// TestInflationIsRepeatable checks that a seed determines the result.
func TestInflationIsRepeatable(t *testing.T) {
	for _, p := range []sim.Policy{sim.Paper()[0], sim.Bourse()[0]} {
		if a, b := figures(t, "multigpu50", &p, 1), figures(t, "multigpu50", &p, 1); a != b {
			t.Errorf("%s: got %v, then %v with the same seed", p.Name, a, b)
		}
	}
}
