package run

// walk calls do for each node of a graph, in a goroutine of its own, once it has returned true for
// all nodes that the node is after. It returns when all calls have; nodes after one for which do
// returned false are left out. Nodes are 0 to len(after)-1, and there is no way from one to itself.
func walk(after [][]int, do func(node int) bool) {
	left := make([]int, len(after))
	next := make([][]int, len(after))
	for i, before := range after {
		left[i] = len(before)
		for _, b := range before {
			next[b] = append(next[b], i)
		}
	}
	type end struct {
		node int
		ok   bool
	}
	ends := make(chan end) // each is received: the loop ends with the last
	running := 0
	begin := func(i int) {
		running++
		go func() { ends <- end{i, do(i)} }()
	}
	for i, n := range left {
		if n == 0 {
			begin(i)
		}
	}
	for running > 0 {
		e := <-ends
		running--
		if !e.ok {
			continue
		}
		for _, i := range next[e.node] {
			if left[i]--; left[i] == 0 {
				begin(i)
			}
		}
	}
}
