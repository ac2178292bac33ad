package sim

import (
	"cmp"
	"slices"
)

// Fragments measures how much of a worker's free GPU capacity is useless for typical orders. The
// measure and the selection of typical shapes are the same as in the paper on fragmentation
// gradient descent and its simulator. Fragments is not safe for concurrent use.
type Fragments struct {
	typical []typical
	memo    map[state]float64
}

// typical is one of the workload's shapes, with its share of all orders.
type typical struct {
	Shape
	share float64
}

// popular is the percentage of all orders that the typical shapes must cover. The measure ignores
// rarer shapes.
const popular = 95

// newFragments returns Fragments for a trace's workload.
func newFragments(t *Trace) *Fragments {
	counts := map[Shape]int{}
	for _, i := range t.Orders {
		s := t.Shapes[i]
		s.Memory = 0 // the measure ignores memory
		counts[s]++
	}
	f := &Fragments{memo: map[state]float64{}}
	for s, n := range counts {
		f.typical = append(f.typical, typical{s, float64(n)})
	}
	slices.SortFunc(f.typical, func(a, b typical) int {
		return cmp.Or(cmp.Compare(b.share, a.share), cmp.Compare(b.CPU, a.CPU), cmp.Compare(b.Share, a.Share), cmp.Compare(b.GPUs, a.GPUs), cmp.Compare(b.Models, a.Models))
	})
	sum := 0.0
	for i := range f.typical {
		if sum*100 >= float64(len(t.Orders))*popular {
			f.typical = f.typical[:i]
			break
		}
		sum += f.typical[i].share
	}
	for i := range f.typical {
		f.typical[i].share /= sum
	}
	return f
}

// state is the part of a worker's state that determines its fragmentation.
type state struct {
	cpu   int64
	model Models
	free  [maxGPUs]int16 // sorted, largest first
}

func (w *Worker) state() state {
	return state{w.freeCPU(), w.Host.Model, sorted(w.free)}
}

func sorted(free [maxGPUs]int16) [maxGPUs]int16 {
	for i := 1; i < len(free); i++ {
		for j := i; j > 0 && free[j] > free[j-1]; j-- {
			free[j], free[j-1] = free[j-1], free[j]
		}
	}
	return free
}

// of returns how much GPU capacity is fragmented on a worker in state s, in thousandths of a GPU.
func (f *Fragments) of(s *state) float64 {
	sum, known := f.memo[*s]
	if !known {
		for i := range f.typical {
			sum += f.typical[i].share * float64(s.useless(&f.typical[i].Shape))
		}
		f.memo[*s] = sum
	}
	return sum
}

// useless returns how much free GPU capacity an order of the given shape cannot use.
func (s *state) useless(shape *Shape) int {
	total, small, roomy := 0, 0, 0
	for _, free := range s.free {
		total += int(free)
		if int(free) < shape.Share {
			small += int(free)
		} else {
			roomy++
		}
	}
	reachable := shape.Models == 0 || shape.Models&s.model != 0
	if shape.GPUs == 0 || !reachable || s.cpu < int64(shape.CPU) || roomy < shape.GPUs {
		return total
	}
	return small
}

// increase returns by how much an order would increase the worker's fragmentation, in thousandths
// of a GPU. If the order shares a GPU, increase also returns the GPU on which it should be placed.
// The order must fit.
func (f *Fragments) increase(w *Worker, shape *Shape) (more float64, gpu int) {
	before := w.state()
	if !shape.shared() {
		return f.of(after(before, w.free, shape, 0)) - f.of(&before), 0
	}
	gpu = -1
	for i, free := range w.free[:w.Host.GPUs] {
		if int(free) < shape.Share || slices.Contains(w.free[:i], free) {
			continue
		}
		if x := f.of(after(before, w.free, shape, i)) - f.of(&before); gpu < 0 || x < more {
			more, gpu = x, i
		}
	}
	return more, gpu
}

// after returns the state that a worker would have after filling an order.
func after(s state, free [maxGPUs]int16, shape *Shape, gpu int) *state {
	s.cpu -= int64(shape.CPU)
	if shape.shared() {
		free[gpu] -= int16(shape.Share)
	} else {
		for i, left := 0, shape.GPUs; left > 0; i++ {
			if free[i] == WholeGPU {
				free[i] = 0
				left--
			}
		}
	}
	s.free = sorted(free)
	return &s
}
