package sim

import (
	"fmt"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/worker/admit"
)

// maxGPUs is the maximum number of GPUs per worker.
const maxGPUs = 8

// gpuKind is the GPU kind under which the lab's ledgers count thousandths of GPUs.
const gpuKind = "milli"

var resourceGPU = bourse.GPUResource(gpuKind)

// Worker is a simulated worker. It uses production code's ledger, and also tracks how much of each
// GPU is free.
type Worker struct {
	Index     int
	id        bourse.WorkerID
	Host      *Host
	ledger    admit.Ledger
	committed [3]bourse.Amount // CPU, GPUs and memory, in the order of the ledger
	free      [maxGPUs]int16   // free thousandths of each GPU
	kinds     [maxGPUs + 1]int
	machines  int
	version   uint32 // increases with each change
}

func newWorker(index int, h *Host) *Worker {
	w := &Worker{Index: index, id: bourse.WorkerID(fmt.Sprintf("w%d", index)), Host: h, version: 1}
	w.ledger.Totals = amounts(int64(h.CPU), int64(h.Memory), h.GPUs*WholeGPU)
	w.committed = [3]bourse.Amount(amounts(0, 0, 0))
	for i := range h.GPUs {
		w.free[i] = WholeGPU
	}
	return w
}

// amounts returns the given amounts of CPU, memory and GPU capacity, sorted by resource.
func amounts(cpu, memory int64, gpu int) bourse.Amounts {
	return bourse.Amounts{{Resource: bourse.ResourceCPU, Amount: cpu}, {Resource: resourceGPU, Amount: int64(gpu)}, {Resource: bourse.ResourceMemory, Amount: memory}}
}

// order is a shape in the form that production code expects.
type order struct {
	*Shape
	takes bourse.Amounts
	needs bourse.Amounts // the part of takes that package market compares with hints
	bourse.Order
}

// newOrders returns an order for each shape. If costs is true, the orders make workers add a cost
// to their quotes; see [Cost].
func newOrders(shapes []Shape, costs bool) []order {
	out := make([]order, len(shapes))
	for i := range shapes {
		s := &shapes[i]
		takes := amounts(int64(s.CPU), int64(s.Memory), s.GPU())
		takes = slices.DeleteFunc(takes, func(a bourse.Amount) bool { return a.Amount == 0 })
		guest := bourse.Guest{CPUs: int64(s.CPU) / 1000, MemoryMB: s.Memory, GPUs: int64(s.GPU()), GPUKind: gpuKind}
		needs := slices.DeleteFunc(slices.Clone(takes), func(a bourse.Amount) bool { return a.Resource == bourse.ResourceCPU })
		out[i] = order{s, takes, needs, bourse.Order{Config: bourse.Config{Guest: &guest}}}
		if costs {
			out[i].Config.Requirements = bourse.Requirements{string(Cost): {Count: 1}}
		}
	}
	return out
}

// fits reports whether the worker has room for an order.
func (w *Worker) fits(o *order) bool {
	if o.Models != 0 && o.Models&w.Host.Model == 0 || w.roomy(o.Share) < o.GPUs {
		return false
	}
	return w.ledger.Fits(w.committed[:], o.takes) == nil
}

// roomy returns the number of GPUs of which at least the given share is free.
func (w *Worker) roomy(share int) int {
	n := 0
	for _, free := range w.free[:w.Host.GPUs] {
		if int(free) >= share {
			n++
		}
	}
	return n
}

// take places an order on the worker and returns the set of GPUs that the order gets. If the order
// shares a GPU, it gets the GPU with index gpu. Otherwise, it gets the first GPUs that are
// completely free.
func (w *Worker) take(o *order, gpu int) (gpus uint8) {
	if o.shared() {
		gpus = 1 << gpu
	} else {
		for i, left := 0, o.GPUs; left > 0; i++ {
			if w.free[i] == WholeGPU {
				gpus |= 1 << i
				left--
			}
		}
	}
	w.change(o, gpus, 1)
	return gpus
}

// release undoes take.
func (w *Worker) release(o *order, gpus uint8) { w.change(o, gpus, -1) }

func (w *Worker) change(o *order, gpus uint8, sign int) {
	w.version++
	w.machines += sign
	if o.GPUs > 0 {
		w.kinds[kindOf(o.Shape)] += sign
	}
	for i := range w.committed {
		a := &w.committed[i]
		a.Amount += int64(sign) * o.takes.Of(a.Resource)
	}
	for i := range w.free {
		if gpus&(1<<i) != 0 {
			w.free[i] -= int16(sign * o.Share)
		}
	}
}

// kindOf returns the number of whole GPUs that a shape takes, or 0 if it shares a GPU.
func kindOf(s *Shape) int {
	if s.shared() {
		return 0
	}
	return s.GPUs
}

// freeCPU returns the worker's free CPU.
func (w *Worker) freeCPU() int64 { return int64(w.Host.CPU) - w.committed[0].Amount }

// freeGPU returns the worker's free GPU capacity, in thousandths of a GPU.
func (w *Worker) freeGPU() int { return w.Host.GPUs*WholeGPU - int(w.committed[1].Amount) }
