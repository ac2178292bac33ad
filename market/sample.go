package market

import (
	"math/rand/v2"

	"github.com/bourse-dev/bourse"
)

// Sample moves d distinct random members to the front of members. For each position, it draws two
// members and takes the one with the better hint (the power of two choices, Mitzenmacher 2001). This
// prevents brokers that have the same outdated hints from all asking the same workers.
func Sample(members []bourse.Member, needs bourse.Amounts, d int, rng *rand.Rand) {
	for i := range min(d, len(members)-1) {
		a, b := i+rng.IntN(len(members)-i), i+rng.IntN(len(members)-i)
		if rateHint(members[b].Free, needs) > rateHint(members[a].Free, needs) {
			a = b
		}
		members[i], members[a] = members[a], members[i]
	}
}

// rateHint rates a worker by its hint: 2 if all needed resources are free, 1 if that is unknown, and
// 0 if some resource is short.
func rateHint(free, needs bourse.Amounts) int {
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

// needs returns the amounts that an order takes from a worker, for comparison with a hint. It omits
// the CPU, because that amount depends on the worker's overcommit factor.
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
