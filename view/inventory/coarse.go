package inventory

import (
	"math"
	"math/bits"

	"github.com/bourse-dev/bourse"
)

// freeBits is the number of significant bits in the free amounts that workers publish. An amount
// that is rounded down to 4 significant bits is at most 12 percent too low, which is accurate
// enough for a hint.
const freeBits = 4

// roundDown returns n rounded down to its freeBits most significant bits, or 0 if n is negative.
func roundDown(n int64) int64 {
	n = max(0, n)
	if shift := bits.Len64(uint64(n)) - freeBits; shift > 0 {
		return n >> shift << shift
	}
	return n
}

// roundLoad returns a load rounded down to freeBits significant bits and to a multiple of 1/16. It
// returns 0 if the load is invalid.
func roundLoad(load float64) float64 {
	const step = 16
	if math.IsNaN(load) || load > math.MaxInt32 {
		return 0
	}
	return float64(roundDown(int64(load*step))) / step
}

// roundFree returns the free amounts in a ledger, rounded down.
func roundFree(ledger []bourse.Account) bourse.Amounts {
	free := make(bourse.Amounts, len(ledger))
	for i, a := range ledger {
		free[i] = bourse.Amount{Resource: a.Resource, Amount: roundDown(a.Free())}
	}
	return free.Sorted()
}
