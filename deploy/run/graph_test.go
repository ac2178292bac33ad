package run

import (
	"slices"
	"sync"
	"testing"

	"github.com/bourse-dev/bourse/deploy"
)

// diamond returns a graph in which 1 and 2 wait for 0, and 3 waits for 1 and 2. Step 4 is
// independent.
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

// TestWalk checks that a step begins once all steps that it waits for have succeeded, and
// that it does not begin if one of them fails.
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
					t.Errorf("step %d begins after %v although step %d fails", step, ended, fails)
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
