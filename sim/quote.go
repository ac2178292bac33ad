package sim

import "github.com/bourse-dev/bourse"

// Cost is an artificial resource. Its account in a quote contains the cost that the worker assigns
// to the order: the amount by which the order would increase the worker's fragmentation, as in
// fragmentation gradient descent (FGD). The worker computes the cost from its own state and the
// workload's typical shapes, so brokers do not need to know them.
//
// A policy can have a curve for Cost, as for any other resource. The account's total is costScale,
// its used amount is half of costScale plus the cost, and the order takes one unit.
const Cost bourse.Resource = "cost"

// costScale is larger than any difference between two costs, in millionths of a GPU.
const costScale = 4 * maxGPUs * 1e6

// refused is the refusal of a worker that has no room. Brokers ignore quotes with a refusal.
var refused = bourse.Refusal{Reason: bourse.RefusedResource}

// quote returns a worker's quote for an order. It contains the order's cost if the order asks for
// it.
func (w *Worker) quote(o *order, f *Fragments) bourse.Quote {
	if !w.fits(o) {
		return bourse.Quote{Refusal: &refused}
	}
	q := bourse.Quote{Worker: w.id, Takes: o.takes, Accounts: w.ledger.Accounts(w.committed[:])}
	if o.Config.Requirements != nil {
		more, _ := f.increase(w, o.Shape)
		used := costScale/2 + int64(1000*more)
		q.Accounts = append([]bourse.Account{{Resource: Cost, Total: costScale, Used: used}}, q.Accounts...) // sorted
		q.Takes = append(bourse.Amounts{{Resource: Cost, Amount: 1}}, q.Takes...)
	}
	return q
}
