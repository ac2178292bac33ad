package inventory

import (
	"math"
	"math/bits"

	"github.com/bourse-dev/bourse"
)

// significant is how many bits of a free amount placement is told: steps of 6 to
// 12 per cent. A hint needs no more.
const significant = 4

// coarse returns an amount rounded down; 0 for a negative one.
func coarse(n int64) int64 {
	n = max(0, n)
	if shift := bits.Len64(uint64(n)) - significant; shift > 0 {
		return n >> shift << shift
	}
	return n
}

// coarseLoad returns a load rounded down in the same way, in steps of at least a
// sixteenth; 0 for what is none.
func coarseLoad(load float64) float64 {
	const step = 16
	if math.IsNaN(load) || load > math.MaxInt32 {
		return 0
	}
	return float64(coarse(int64(load*step))) / step
}

// coarseFree returns what is free by a ledger, coarse.
func coarseFree(ledger []bourse.Account) bourse.Amounts {
	free := make(bourse.Amounts, len(ledger))
	for i, a := range ledger {
		free[i] = bourse.Amount{Resource: a.Resource, Amount: coarse(a.Free())}
	}
	return free.Sorted()
}
