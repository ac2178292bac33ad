package market

import (
	"math/rand/v2"

	"github.com/bourse-dev/bourse"
)

// sample moves d of members to the front, at random and each at most once,
// the rest stays behind them. For each place two are drawn and the one
// with the better hint is taken: the power of two choices (Mitzenmacher
// 2001), which keeps brokers with the same stale hint from all asking the same
// workers. A d past the end takes them all.
func sample(members []bourse.Member, needs bourse.Amounts, d int, rng *rand.Rand) {
	for i := range min(d, len(members)-1) {
		a, b := i+rng.IntN(len(members)-i), i+rng.IntN(len(members)-i)
		if room(members[b].Free, needs) > room(members[a].Free, needs) {
			a = b
		}
		members[i], members[a] = members[a], members[i]
	}
}

// room rates the hint: 2 when everything that is needed is free,
// 1 when it is unknown, 0 when something is short.
func room(free, needs bourse.Amounts) int {
	if len(free) == 0 {
		return 1
	}
	for _, n := range needs {
		if free.Of(n.Resource) < n.Amount {
			return 0
		}
	}
	return 2
}

// needs returns what an order takes of a worker, as far as a hint knows it. Cpu
// is left out: how much of it is taken depends on the worker's overcommit.
func needs(order *bourse.Order) bourse.Amounts {
	var out bourse.Amounts
	if v := order.Volume; v != nil {
		out = append(out, bourse.Amount{Resource: bourse.ResourceDisk, Amount: int64(v.Disk())})
	}
	if g := order.Config.Guest; g != nil {
		out = append(out, bourse.Amount{Resource: bourse.ResourceMemory, Amount: int64(g.MemoryMB)})
		if g.GPUs > 0 {
			out = append(out, bourse.Amount{Resource: bourse.GPUResource(g.GPUKind), Amount: g.GPUs})
		}
	}
	for name, r := range order.Config.Requirements {
		if r.Count > 0 {
			out = append(out, bourse.Amount{Resource: bourse.Resource(name), Amount: r.Count})
		}
	}
	return out
}
