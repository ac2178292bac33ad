package gossip

import (
	"math/bits"
	"slices"

	"github.com/bourse-dev/bourse"
)

// significant is how many bits of a free amount travel: steps of 6 to 12 per
// cent. A hint needs no more, and what does not change is not sent.
const significant = 4

// coarse gives the amounts rounded down, as a new list.
func coarse(free bourse.Amounts) bourse.Amounts {
	out := slices.Clone(free).Sorted()
	for i := range out {
		if shift := bits.Len64(uint64(max(0, out[i].Amount))) - significant; shift > 0 {
			out[i].Amount = out[i].Amount >> shift << shift
		}
	}
	return out
}
