package run

import (
	"slices"
	"sync"
	"testing"

	"github.com/bourse-dev/bourse/deploy"
)

// diamond is 0 → 1, 2 → 3, and 4 on its own.
func diamond() graph {
	return newGraph(&deploy.Plan{Steps: []deploy.Step{{}, {After: []int{0}}, {After: []int{0}}, {After: []int{1, 2}}, {}}})
}

func TestPreceding(t *testing.T) {
	t.Parallel()
	g := diamond()
	for step, want := range [][]int{nil, {0}, {0}, {0, 1, 2}, nil} {
		if got := g.preceding(step); !slices.Equal(got, want) {
			t.Errorf("before %d: %v, want %v", step, got, want)
		}
	}
	if got := g.reverse().preceding(0); !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("after 0: %v", got)
	}
}

// Steps begin once all steps that they wait for have succeeded, and not at all otherwise.
func TestWalk(t *testing.T) {
	t.Parallel()
	for _, fails := range []int{-1, 0, 1, 3, 4} {
		var mu sync.Mutex
		var ended []int
		g := diamond()
		g.walk(func(step int) bool {
			mu.Lock()
			defer mu.Unlock()
			for _, b := range g.preceding(step) {
				if !slices.Contains(ended, b) || b == fails {
					t.Errorf("%d begins after %v, and %d fails", step, ended, fails)
				}
			}
			ended = append(ended, step)
			return step != fails
		})
		want := map[int]int{-1: 5, 0: 2, 1: 4, 3: 5, 4: 5}[fails]
		if len(ended) != want {
			t.Errorf("with %d failing, %v have begun, want %d steps", fails, ended, want)
		}
	}
}
