package sim

import "github.com/bourse-dev/bourse"

// Cost is an artificial resource. Its account in a quote contains the worker's own rating of the
// order: the cost. The worker computes the cost from its own state and the workload's typical
// shapes; brokers need to know neither. The cost is the increase of the worker's fragmentation, as
// in fragmentation gradient descent (FGD), plus the worker's position. Positions are random but
// fixed, so similar workers are filled one after the other, and the last ones remain empty for
// large orders.
//
// Curves can rank quotes by Cost as by any other resource: the account's total is costScale, its
// used amount is half of that plus the cost, and the order takes 1 of it.
const Cost bourse.Resource = "cost"

// costScale is larger than any difference between two costs, in millionths of a GPU.
const costScale = 4 * maxGPUs * 1e6

// positions is the largest difference between two positions, in thousandths of a GPU. It was tuned
// on workloads with seeds other than those of the published results.
const positions = WholeGPU

// cost returns a worker's rating of an order, in thousandths of a GPU. Lower is better. The order
// must fit.
func (f *Fragments) cost(w *Worker, s *Shape, broker int) float64 {
	more, _ := f.increase(w, s)
	return more + f.positions*w.position(broker)
}

// position returns a number from 0 to 1 that depends only on the worker and the broker. The numbers
// of different brokers are independent, so that brokers fill different workers.
func (w *Worker) position(broker int) float64 {
	x := uint64(w.Index)<<32 | uint64(broker)
	for _, factor := range []uint64{0xBF58476D1CE4E5B9, 0x94D049BB133111EB} { // SplitMix64 (Steele et al., OOPSLA 2014)
		x = (x ^ x>>29 + 0x9E3779B97F4A7C15) * factor
	}
	return float64((x^x>>31)>>11) / (1 << 53)
}

// refused is the refusal of a worker that has no room. Brokers ignore quotes with a refusal.
var refused = bourse.Refusal{Reason: bourse.RefusedResource}

// quote returns a worker's quote for an order. It contains the order's cost if the order asks for
// it.
func (w *Worker) quote(o *order, f *Fragments, broker int) bourse.Quote {
	if !w.fits(o) {
		return bourse.Quote{Refusal: &refused}
	}
	q := bourse.Quote{Takes: o.takes, Accounts: w.ledger.Accounts(w.committed[:])}
	if o.Config.Requirements != nil {
		used := costScale/2 + int64(1000*f.cost(w, o.Shape, broker))
		q.Accounts = append([]bourse.Account{{Resource: Cost, Total: costScale, Used: used}}, q.Accounts...) // sorted
		q.Takes = append(bourse.Amounts{{Resource: Cost, Amount: 1}}, q.Takes...)
	}
	return q
}
