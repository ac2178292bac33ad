package balance

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/proxy/route"
)

// Criteria restricts and orders the machines that a request may use. The zero value allows
// every machine.
type Criteria struct {
	Regions  [][]bourse.Region  // groups of regions, in order of preference; other regions come last or, if Force is set, are not allowed
	Force    bool               // only the listed regions are allowed
	Instance bourse.MachineID   // the preferred machine; "": none
	Only     bool               // only the preferred machine is allowed
	Tried    []bourse.MachineID // machines on which this request has failed; retried only if no other machine is left

	// Unresponsive maps each unresponsive worker to the time that this request has spent waiting for it. Among equally
	// healthy machines, those on the worker with the shortest time come first.
	Unresponsive map[bourse.WorkerID]time.Duration
}

// Load describes the current load of a machine.
type Load struct {
	InUse   int  // requests or connections in progress, including those of other proxies
	Own     int  // part of InUse that comes from this proxy
	Suspect bool // the machine or its worker failed recently
}

// Input contains the data that [Choose] needs in addition to the list of machines.
type Input struct {
	Load     func(*route.Backend) Load
	Distance func(bourse.Region) int // distance from the proxy to a region in kilometers; 0: the proxy's own region
	Rand     *rand.Rand
}

// Result is the outcome of a choice.
type Result string

// Results of a choice.
const (
	Chosen Result = "chosen" // a machine was chosen
	Full   Result = "full"   // every usable machine is at its hard limit
	None   Result = "none"   // no machine is usable
)

// Choose returns the index of the machine in list that should handle a request, and the result Chosen. If there is no
// such machine, it returns another result, and the index has no meaning. The list must be sorted by ID.
//
// The preferred machine comes first if it is healthy. Otherwise, running machines come first: those in the preferred
// regions, then those in the nearest regions and, within a region, those below their soft limits. A region is used only
// if all machines in the regions before it are missing, unhealthy or at their hard limits. If no running machine in any
// region is below its soft limit, a stopped machine is started. The order of preference is then: machines that are
// already starting, machines in nearer regions, suspended machines. Machines that failed recently or whose worker is
// unreachable come last. Among equally good machines, Choose picks two at random and returns the less loaded one.
func Choose(list []route.Backend, w *Criteria, s *Input) (int, Result) {
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
		if full[level] { // waiting is better than using a failed machine
			return -1, Full
		}
	}
	return -1, None
}

// allows reports whether the criteria allow a machine.
func (w *Criteria) allows(b *route.Backend) bool {
	return (!w.Only || b.Machine == w.Instance) && (!w.Force || w.regionRank(b.Region) < len(w.Regions))
}

// regionRank returns the index of the group in w.Regions that contains the region. If no group contains the region, the
// result is the number of groups.
func (w *Criteria) regionRank(r bourse.Region) int {
	if i := slices.IndexFunc(w.Regions, func(group []bourse.Region) bool { return slices.Contains(group, r) }); i >= 0 {
		return i
	}
	return len(w.Regions)
}

// kind describes the state in which a request finds a machine.
type kind int

const (
	running  kind = iota // the machine is already running
	starting             // the machine is starting, or must be started
	// The machine is starting or must be started, and the number of requests that are waiting for it has reached its
	// soft limit.
	startingFull
	kindCount
)

const levelCount = 4

// rank describes how suitable a machine is for a request. A lower rank is better.
type rank struct {
	level     int // 0: healthy; 1: failed recently or unreachable; 2 and 3: like 0 and 1, but this request has already failed on the machine
	kind      kind
	order     [5]int // compared lexicographically; lower is better
	belowSoft bool   // the machine is below its soft limit
}

// rankMachine returns a machine's rank, and whether the machine can be used.
func rankMachine(b *route.Backend, w *Criteria, s *Input) (rank, Result) {
	if unusableReason(b) != "" {
		return rank{}, None
	}
	load, limits := s.Load(b), b.Service.Concurrency
	k := rank{belowSoft: load.InUse < limits.Soft}
	if load.Suspect || !b.Reachable {
		k.level = 1
	}
	if slices.Contains(w.Tried, b.Machine) {
		k.level += 2
	}
	if limits.Hard > 0 && load.InUse >= limits.Hard {
		return k, Full
	}
	listed := w.regionRank(b.Region)
	place := 0
	if listed == len(w.Regions) {
		place = s.Distance(b.Region)
	}
	waited := int(w.Unresponsive[b.Worker])
	switch {
	case b.Running():
		k.order = [5]int{waited, listed, place, boolToInt(!k.belowSoft), boolToInt(b.Unchecked)}
	default:
		if k.kind = starting; !k.belowSoft {
			k.kind = startingFull
		}
		k.order = [5]int{waited, listed, boolToInt(load.Own == 0 && b.State != bourse.StateStarting), place, wakeOrder(b.State)}
	}
	return k, Chosen
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// wakeOrder ranks the states of machines that are not running yet. The lower the rank, the sooner the machine will be
// running.
func wakeOrder(s bourse.State) int {
	return slices.Index([]bourse.State{
		bourse.StateStarting, bourse.StateSuspended, bourse.StateStopped, bourse.StateCreated, bourse.StateReplacing, bourse.StateSuspending, bourse.StateStopping, bourse.StateRestarting,
	}, s)
}

// chooser contains the best machines found so far, separately for each level and kind (see rank).
type chooser [levelCount]levelGroups

type levelGroups [kindCount]group

// best returns the group from which to choose a machine, or nil if all groups are empty.
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

// group represents a set of equally good machines. It contains only their number, and a random sample of two of them.
type group struct {
	n       int
	hasRoom bool // whether any machine of this level and kind is below its soft limit, even one that is not among the best
	key     rank
	sample  [2]int
}

// add adds the machine with index i and rank k, unless the group's machines are better. If the new machine is better,
// it replaces the whole group.
func (g *group) add(i int, k rank, s *Input) {
	g.hasRoom = g.hasRoom || k.belowSoft
	switch c := slices.Compare(k.order[:], g.key.order[:]); {
	case g.n == 0 || c < 0:
		g.n, g.key, g.sample = 1, k, [2]int{i, i}
	case c == 0:
		// Reservoir sampling: all pairs of the machines added so far are equally likely to be the sample.
		if g.n++; g.n == 2 {
			g.sample[1] = i
		} else if j := s.Rand.IntN(g.n); j < 2 {
			g.sample[j] = i
		}
	}
}

// pick returns the index of the machine in the sample whose load is lower in proportion to its soft limit.
func (g *group) pick(list []route.Backend, s *Input) int {
	if g.n == 1 {
		return g.sample[0]
	}
	a, b := &list[g.sample[0]], &list[g.sample[1]]
	x := s.Load(a).InUse * max(b.Service.Concurrency.Soft, 1)
	y := s.Load(b).InUse * max(a.Service.Concurrency.Soft, 1)
	if x == y {
		return g.sample[s.Rand.IntN(2)]
	}
	if x < y {
		return g.sample[0]
	}
	return g.sample[1]
}

// unusableReason returns the reason why a machine cannot serve any requests, or "" if it can. The result does not
// depend on other machines.
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

// distances caches the distances between the proxy's region and other regions. It is not safe for
// concurrent use.
type distances struct {
	here  bourse.Region
	known map[bourse.Region]int
}

const (
	unknownDistance = 40_000 // in kilometers; greater than any real distance
	maxKnown        = 1024
)

// of returns the distance to a region in kilometers. It is 0 only for the proxy's own region.
func (p *distances) of(r bourse.Region) int {
	if r == p.here {
		return 0
	}
	km, ok := p.known[r]
	if ok {
		return km
	}
	if p.known == nil || len(p.known) >= maxKnown { // region names come from workers, so the size of the cache must be limited
		p.known = map[bourse.Region]int{}
	}
	p.known[r] = Kilometers(p.here, r)
	return p.known[r]
}

// Kilometers returns the distance between two regions. It is 0 if they are the same region, and
// otherwise at least 1. A region with an unknown location is farther away than any other.
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
