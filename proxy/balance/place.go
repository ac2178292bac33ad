package balance

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// places says how far regions are from here. It is not safe for concurrent use.
type places struct {
	here  bourse.Region
	known map[bourse.Region]int
}

const (
	farthest  = 40_000 // kilometres, more than any: for regions whose place is not known
	maxPlaces = 1024
)

// of returns how far a region is, in kilometres: 0 is here.
func (p *places) of(r bourse.Region) int {
	if r == p.here {
		return 0
	}
	km, ok := p.known[r]
	if ok {
		return km
	}
	if p.known == nil || len(p.known) >= maxPlaces { // names of regions are what workers say
		p.known = map[bourse.Region]int{}
	}
	p.known[r] = Kilometers(p.here, r)
	return p.known[r]
}

// Kilometers returns how far one region is from another, as a whole number that is 0
// for the same region only. Those whose place is not known are the farthest.
func Kilometers(from, to bourse.Region) int {
	if from == to {
		return 0
	}
	a, ok := machinesapi.GeographyOf(from)
	b, found := machinesapi.GeographyOf(to)
	if !ok || !found {
		return farthest
	}
	return 1 + int(a.Kilometers(b))
}
