package balance

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/proxy/route"
)

// Want is what a request asks of the choice of its machine. Its zero value asks
// nothing.
type Criteria struct {
	Regions  [][]bourse.Region  // in this order; all others behind them, unless Force
	Force    bool               // no region but these
	Instance bourse.MachineID   // that machine, if it can be
	Only     bool               // that machine or none
	Tried    []bourse.MachineID // tried already; again only if there is no other
}

// Load is what a proxy knows of the use of a machine.
type Load struct {
	Use     int  // requests or connections in progress, those of other proxies too
	Ours    int  // of them this proxy's
	Suspect bool // it, or its worker, has just failed
}

// Sight is what a choice is made by, beside the machines themselves.
type Input struct {
	Load     func(*route.Backend) Load
	Distance func(bourse.Region) int // how far away it is: 0 is here
	Rand     *rand.Rand
}

// Verdict says what became of a choice.
type Verdict string

// The verdicts.
const (
	Chosen Verdict = "chosen" // a machine that has room
	Full   Verdict = "full"   // every machine that could answer is at its hard limit
	None   Verdict = "none"   // no machine can answer
)

// Choose returns the machine that a request goes to, by its place in the list, which
// is in order of id.
//
// Machines that run and have less than their soft limit come first, the closest
// region before others. A region is left only when its machines are at their hard
// limits, ill or away. When no machine at all is below its soft limit, one is
// started: rather one that is being started than another, rather in the closest
// region, rather one that is resumed. What has just failed, or is not heard from,
// comes last. Among equals the less loaded of two random ones is chosen.
func Choose(list []route.Backend, w *Criteria, s *Input) (int, Verdict) {
	var c chooser
	if w.Instance != "" {
		at, found := slices.BinarySearchFunc(list, w.Instance, func(b route.Backend, id bourse.MachineID) int { return cmp.Compare(b.Machine, id) })
		if found && w.allows(&list[at]) {
			k, how := rankMachine(&list[at], w, s)
			if how == Chosen && (w.Only || k.level == 0) || how == Full && w.Only {
				return at, how
			}
		}
	}
	if w.Only {
		return -1, None
	}
	var full [levelCount]bool
	for i := range list {
		b := &list[i]
		if !w.allows(b) {
			continue
		}
		switch k, how := rankMachine(b, w, s); how {
		case Chosen:
			c[k.level][k.kind].add(i, k, s)
		case Full:
			full[k.level] = true
		case None:
		}
	}
	for level := range c {
		if best := c[level].best(); best != nil {
			return best.pick(list, s), Chosen
		}
		if full[level] { // rather wait for it than go to what has failed
			return -1, Full
		}
	}
	return -1, None
}

// allows reports whether a machine is among those that a request may go to.
func (w *Criteria) allows(b *route.Backend) bool {
	return (!w.Only || b.Machine == w.Instance) && (!w.Force || w.regionRank(b.Region) < len(w.Regions))
}

// region returns the place of a region in the request's list, or the list's length.
func (w *Criteria) regionRank(r bourse.Region) int {
	if i := slices.IndexFunc(w.Regions, func(group []bourse.Region) bool { return slices.Contains(group, r) }); i >= 0 {
		return i
	}
	return len(w.Regions)
}

// kind is how a machine would be used.
type kind int

const (
	running      kind = iota // it runs
	starting                 // it is started for the request, or someone else starts it
	startingFull             // as starting, and as many as its soft limit wait for it
	kindCount
)

const levelCount = 4

// key says how good a machine is: the least is the best.
type rank struct {
	level     int // 0; 1: it has just failed or is not heard from; 2 and 3: so, and it was tried
	kind      kind
	order     [4]int // compared in turn
	belowSoft bool   // below its soft limit
}

// rankOf returns how good a machine is, if it is of use at all.
func rankMachine(b *route.Backend, w *Criteria, s *Input) (rank, Verdict) {
	if unusableReason(b) != "" {
		return rank{}, None
	}
	load, limits := s.Load(b), b.Service.Concurrency
	k := rank{belowSoft: load.Use < limits.Soft}
	if load.Suspect || !b.Reachable {
		k.level = 1
	}
	if slices.Contains(w.Tried, b.Machine) {
		k.level += 2
	}
	if limits.Hard > 0 && load.Use >= limits.Hard {
		return k, Full
	}
	listed := w.regionRank(b.Region)
	place := 0
	if listed == len(w.Regions) {
		place = s.Distance(b.Region)
	}
	switch {
	case b.Running():
		k.order = [4]int{listed, place, boolToInt(!k.belowSoft), boolToInt(b.Unchecked)}
	default:
		if k.kind = starting; !k.belowSoft {
			k.kind = startingFull
		}
		k.order = [4]int{listed, boolToInt(load.Ours == 0 && b.State != bourse.StateStarting), place, wakeOrder(b.State)}
	}
	return k, Chosen
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// wakeOrder puts the states in the order in which a machine soon runs.
func wakeOrder(s bourse.State) int {
	return slices.Index([]bourse.State{
		bourse.StateStarting, bourse.StateSuspended, bourse.StateStopped, bourse.StateReplacing, bourse.StateSuspending, bourse.StateStopping, bourse.StateRestarting,
	}, s)
}

// chooser has, for each level and kind, the best machines seen so far.
type chooser [levelCount]levelGroups

type levelGroups [kindCount]group

// best returns the group that is used, nil when there is none.
func (l *levelGroups) best() *group {
	run, start, crowd := &l[running], &l[starting], &l[startingFull]
	switch {
	case run.n > 0 && (run.hasRoom || start.n == 0):
		return run
	case start.n > 0:
		return start
	case crowd.n > 0:
		return crowd
	}
	return nil
}

// group is machines that are equally good: how many, and two random ones.
type group struct {
	n       int
	hasRoom bool // a machine of this kind, not only of the best, is below its soft limit
	key     rank
	sample  [2]int
}

// add adds a machine, if none was better.
func (g *group) add(i int, k rank, s *Input) {
	g.hasRoom = g.hasRoom || k.belowSoft
	switch c := slices.Compare(k.order[:], g.key.order[:]); {
	case g.n == 0 || c < 0:
		g.n, g.key, g.sample = 1, k, [2]int{i, i}
	case c == 0:
		// Each pair of those seen so far is equally likely (reservoir sampling).
		if g.n++; g.n == 2 {
			g.sample[1] = i
		} else if j := s.Rand.IntN(g.n); j < 2 {
			g.sample[j] = i
		}
	}
}

// pick returns the less loaded of the two, by what they can do.
func (g *group) pick(list []route.Backend, s *Input) int {
	if g.n == 1 {
		return g.sample[0]
	}
	a, b := &list[g.sample[0]], &list[g.sample[1]]
	x := s.Load(a).Use * max(b.Service.Concurrency.Soft, 1)
	y := s.Load(b).Use * max(a.Service.Concurrency.Soft, 1)
	if x == y {
		return g.sample[s.Rand.IntN(2)]
	}
	if x < y {
		return g.sample[0]
	}
	return g.sample[1]
}

// unfit returns why no request goes to a machine, whatever others are there; empty
// for one that may be used.
func unusableReason(b *route.Backend) string {
	switch {
	case b.Unusable != "":
		return b.Unusable
	case b.Cordoned:
		return "it is cordoned"
	case b.Failing != "":
		return "check " + b.Failing + " fails"
	case b.Running() || b.Starting() || b.Startable():
		return ""
	case b.Standby:
		return "it is " + string(b.State) + ", and stands by for another machine"
	case b.State == bourse.StateFailed:
		return "it could not be started"
	case b.State == bourse.StateStopped || b.State == bourse.StateSuspended:
		return "it is " + string(b.State) + ", and has no autostart"
	}
	return "it is " + string(b.State)
}

// places says how far regions are from here. It is not safe for concurrent use.
type distances struct {
	here  bourse.Region
	known map[bourse.Region]int
}

const (
	unknownDistance = 40_000 // kilometres, more than any: for regions whose place is not known
	maxKnown        = 1024
)

// of returns how far a region is, in kilometres: 0 is here.
func (p *distances) of(r bourse.Region) int {
	if r == p.here {
		return 0
	}
	km, ok := p.known[r]
	if ok {
		return km
	}
	if p.known == nil || len(p.known) >= maxKnown { // names of regions are what workers say
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
		return unknownDistance
	}
	return 1 + int(a.Kilometers(b))
}
