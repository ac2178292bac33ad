package run

import (
	"slices"

	"github.com/bourse-dev/bourse/deploy"
)

// graph contains the dependencies between a plan's steps.
type graph struct {
	before [][]int // for each step, the steps that it waits for directly
	after  [][]int // for each step, the steps that wait for it directly
}

func newGraph(p *deploy.Plan) graph {
	g := graph{make([][]int, len(p.Steps)), make([][]int, len(p.Steps))}
	for i := range p.Steps {
		g.before[i] = p.Steps[i].After
		for _, b := range g.before[i] {
			g.after[b] = append(g.after[b], i)
		}
	}
	return g
}

// reverse returns the graph with all dependencies reversed.
func (g graph) reverse() graph { return graph{g.after, g.before} }

// preceding returns all steps that a step waits for, directly or indirectly, in ascending
// order.
func (g graph) preceding(step int) []int {
	seen := map[int]bool{}
	var out []int
	for todo := []int{step}; len(todo) > 0; {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, b := range g.before[i] {
			if !seen[b] {
				seen[b] = true
				out, todo = append(out, b), append(todo, b)
			}
		}
	}
	slices.Sort(out)
	return out
}

// walk calls do for each step, in a new goroutine, once do has returned true for all of the step's dependencies. If do
// returns false for a step, the steps that depend on it are skipped. walk returns when all calls have returned.
func (g graph) walk(do func(step int) bool) {
	waiting := make([]int, len(g.before))
	type end struct {
		step int
		ok   bool
	}
	ends := make(chan end) // unbuffered, because the loop below receives from every goroutine
	running := 0
	begin := func(i int) {
		running++
		go func() { ends <- end{i, do(i)} }()
	}
	for i, before := range g.before {
		if waiting[i] = len(before); waiting[i] == 0 {
			begin(i)
		}
	}
	for running > 0 {
		e := <-ends
		running--
		if !e.ok {
			continue
		}
		for _, i := range g.after[e.step] {
			if waiting[i]--; waiting[i] == 0 {
				begin(i)
			}
		}
	}
}
