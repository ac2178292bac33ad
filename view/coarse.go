package view

import (
	"math"
	"math/bits"

	"github.com/bourse-dev/bourse"
)

// significant is how many bits of a free amount travel: steps of 6 to 12 per
// cent. A hint needs no more, and what does not change is not sent.
const significant = 4

// coarse gives an amount rounded down; 0 for a negative one.
func coarse(n int64) int64 {
	n = max(0, n)
	if shift := bits.Len64(uint64(n)) - significant; shift > 0 {
		return n >> shift << shift
	}
	return n
}

// coarseLoad gives a load rounded down in the same way, in steps of at least a
// sixteenth; 0 for what is none.
func coarseLoad(load float64) float64 {
	const step = 16
	if math.IsNaN(load) || load > math.MaxInt32 {
		return 0
	}
	return float64(coarse(int64(load*step))) / step
}

// coarseAccounts gives a ledger in which what is free is coarse and totals are
// exact, and what is free alone.
func coarseAccounts(ledger []bourse.Account) ([]bourse.Account, bourse.Amounts) {
	accounts := make([]bourse.Account, len(ledger))
	free := make(bourse.Amounts, len(ledger))
	for i, a := range ledger {
		n := coarse(a.Free())
		accounts[i] = bourse.Account{Resource: a.Resource, Total: a.Total, Used: a.Total - n}
		free[i] = bourse.Amount{Resource: a.Resource, Amount: n}
	}
	return accounts, free.Sorted()
}
