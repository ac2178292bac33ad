package balance

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/proxy/route"
)

// Criteria restricts and orders the machines that a request may use. The zero value allows
// every machine.
type Criteria struct {
	Regions  [][]bourse.Region  // in order of preference; all other regions come last, unless Force is set
	Force    bool               // only the listed regions are allowed
	Instance bourse.MachineID   // preferred machine
	Only     bool               // only Instance is allowed
	Tried    []bourse.MachineID // machines that have failed this request; used again only if there is no other
}

// Load describes the current load of a machine.
type Load struct {
	Use     int  // requests or connections in progress, including those of other proxies
	Ours    int  // part of Use that comes from this proxy
	Suspect bool // the machine or its worker failed recently
}

// Input is the input of Choose in addition to the machines.
type Input struct {
	Load     func(*route.Backend) Load
	Distance func(bourse.Region) int // distance in kilometers; 0: this region
	Rand     *rand.Rand
}

// Verdict is the outcome of a choice.
type Verdict string

// The verdicts.
const (
	Chosen Verdict = "chosen" // a machine was chosen
	Full   Verdict = "full"   // every usable machine is at its hard limit
	None   Verdict = "none"   // no machine is usable
)

// Choose returns the index of the machine that should handle a request. The list must be
// sorted by id.
//
// Running machines below their soft limits come first, nearest region first. Another region
// is used only if the machines of the nearer ones are at their hard limits, unhealthy or
// missing. If no running machine is below its soft limit, a stopped one is started;
// machines that are already starting, nearer regions, and suspended machines are preferred,
// in this order. Machines that failed recently or whose worker is unreachable come last.
// Among equals, Choose picks two at random and returns the less loaded one.
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
		if full[level] { // rather wait than use a machine that has failed
			return -1, Full
		}
	}
	return -1, None
}

// allows reports whether the request may use a machine.
func (w *Criteria) allows(b *route.Backend) bool {
	return (!w.Only || b.Machine == w.Instance) && (!w.Force || w.regionRank(b.Region) < len(w.Regions))
}

// regionRank returns the position of a region in the request's list, or the list's length
// if it is not listed.
func (w *Criteria) regionRank(r bourse.Region) int {
	if i := slices.IndexFunc(w.Regions, func(group []bourse.Region) bool { return slices.Contains(group, r) }); i >= 0 {
		return i
	}
	return len(w.Regions)
}

// kind is the way in which a machine would serve the request.
type kind int

const (
	running      kind = iota // already running
	starting                 // must be started, or is starting
	startingFull             // like starting, but as many requests as its soft limit already wait for it
	kindCount
)

const levelCount = 4

// rank orders machines; the lowest is the best.
type rank struct {
	level     int // 0: healthy; 1: failed recently or unreachable; 2 and 3: likewise, but already tried
	kind      kind
	order     [4]int // compared lexicographically
	belowSoft bool   // below its soft limit
}

// rankMachine returns the rank of a machine and whether it can be used.
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

// wakeOrder orders states by how soon a machine in them can be running.
func wakeOrder(s bourse.State) int {
	return slices.Index([]bourse.State{
		bourse.StateStarting, bourse.StateSuspended, bourse.StateStopped, bourse.StateReplacing, bourse.StateSuspending, bourse.StateStopping, bourse.StateRestarting,
	}, s)
}

// chooser collects the best machines seen so far, by level and kind.
type chooser [levelCount]levelGroups

type levelGroups [kindCount]group

// best returns the group to choose from, or nil if there is none.
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

// group is a set of equally good machines: their number and a random sample of two.
type group struct {
	n       int
	hasRoom bool // at least one machine of this kind, not only of the best ones, is below its soft limit
	key     rank
	sample  [2]int
}

// add adds a machine unless a better one was added before.
func (g *group) add(i int, k rank, s *Input) {
	g.hasRoom = g.hasRoom || k.belowSoft
	switch c := slices.Compare(k.order[:], g.key.order[:]); {
	case g.n == 0 || c < 0:
		g.n, g.key, g.sample = 1, k, [2]int{i, i}
	case c == 0:
		// Every pair of the machines seen so far is equally likely (reservoir sampling).
		if g.n++; g.n == 2 {
			g.sample[1] = i
		} else if j := s.Rand.IntN(g.n); j < 2 {
			g.sample[j] = i
		}
	}
}

// pick returns the less loaded machine of the sample, relative to their soft limits.
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

// unusableReason returns why a machine can serve no request, whatever the state of the
// others, or "" if it can.
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
		return "it is " + string(b.State) + " and a standby for another machine"
	case b.State == bourse.StateFailed:
		return "it could not be started"
	case b.State == bourse.StateStopped || b.State == bourse.StateSuspended:
		return "it is " + string(b.State) + " and autostart is off"
	}
	return "it is " + string(b.State)
}

// distances caches the distances of regions from here. It is not safe for concurrent use.
type distances struct {
	here  bourse.Region
	known map[bourse.Region]int
}

const (
	unknownDistance = 40_000 // kilometers; greater than any distance on earth
	maxKnown        = 1024
)

// of returns the distance of a region in kilometers; 0 means the same region.
func (p *distances) of(r bourse.Region) int {
	if r == p.here {
		return 0
	}
	km, ok := p.known[r]
	if ok {
		return km
	}
	if p.known == nil || len(p.known) >= maxKnown { // region names come from workers, so their number must be bounded
		p.known = map[bourse.Region]int{}
	}
	p.known[r] = Kilometers(p.here, r)
	return p.known[r]
}

// Kilometers returns the distance between two regions, rounded to a positive number; it is
// 0 only for the same region. Regions with an unknown location are farther away than all
// others.
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
