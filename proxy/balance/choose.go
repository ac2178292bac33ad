package balance

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy/route"
)

// Want is what a request asks of the choice of its machine. Its zero value asks
// nothing.
type Want struct {
	Regions  [][]bourse.Region  // in this order; all others behind them, unless Force
	Force    bool               // no region but these
	Instance bourse.MachineID   // that machine, if it can be
	Only     bool               // that machine or none
	Not      []bourse.MachineID // tried already; again only if there is no other
}

// Load is what a proxy knows of the use of a machine.
type Load struct {
	Use     int  // requests or connections in progress, those of other proxies too
	Ours    int  // of them this proxy's
	Suspect bool // it, or its worker, has just failed
}

// Sight is what a choice is made by, beside the machines themselves.
type Sight struct {
	Load  func(*route.Backend) Load
	Place func(bourse.Region) int // how far away it is: 0 is here
	Rand  *rand.Rand
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
func Choose(list []route.Backend, w *Want, s *Sight) (int, Verdict) {
	var c chooser
	if w.Instance != "" {
		at, found := slices.BinarySearchFunc(list, w.Instance, func(b route.Backend, id bourse.MachineID) int { return cmp.Compare(b.Machine, id) })
		if found && w.allows(&list[at]) {
			k, how := rankOf(&list[at], w, s)
			if how == Chosen && (w.Only || k.level == 0) || how == Full && w.Only {
				return at, how
			}
		}
	}
	if w.Only {
		return -1, None
	}
	var full [levels]bool
	for i := range list {
		b := &list[i]
		if !w.allows(b) {
			continue
		}
		switch k, how := rankOf(b, w, s); how {
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
func (w *Want) allows(b *route.Backend) bool {
	return (!w.Only || b.Machine == w.Instance) && (!w.Force || w.region(b.Region) < len(w.Regions))
}

// region returns the place of a region in the request's list, or the list's length.
func (w *Want) region(r bourse.Region) int {
	if i := slices.IndexFunc(w.Regions, func(group []bourse.Region) bool { return slices.Contains(group, r) }); i >= 0 {
		return i
	}
	return len(w.Regions)
}

// kind is how a machine would be used.
type kind int

const (
	running  kind = iota // it runs
	starting             // it is started for the request, or someone else starts it
	crowded              // as starting, and as many as its soft limit wait for it
	kinds
)

const levels = 4

// key says how good a machine is: the least is the best.
type key struct {
	level    int // 0; 1: it has just failed or is not heard from; 2 and 3: so, and it was tried
	kind     kind
	order    [4]int // compared in turn
	belowMax bool   // below its soft limit
}

// rankOf returns how good a machine is, if it is of use at all.
func rankOf(b *route.Backend, w *Want, s *Sight) (key, Verdict) {
	if unfit(b) != "" {
		return key{}, None
	}
	load, limits := s.Load(b), b.Service.Concurrency
	k := key{belowMax: load.Use < limits.Soft}
	if load.Suspect || !b.Heard {
		k.level = 1
	}
	if slices.Contains(w.Not, b.Machine) {
		k.level += 2
	}
	if limits.Hard > 0 && load.Use >= limits.Hard {
		return k, Full
	}
	listed := w.region(b.Region)
	place := 0
	if listed == len(w.Regions) {
		place = s.Place(b.Region)
	}
	switch {
	case b.Runs():
		k.order = [4]int{listed, place, number(!k.belowMax), number(b.Unproven)}
	default:
		if k.kind = starting; !k.belowMax {
			k.kind = crowded
		}
		k.order = [4]int{listed, number(load.Ours == 0 && b.State != bourse.StateStarting), place, wakeOrder(b.State)}
	}
	return k, Chosen
}

func number(b bool) int {
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
type chooser [levels]ofLevel

type ofLevel [kinds]group

// best returns the group that is used, nil when there is none.
func (l *ofLevel) best() *group {
	run, start, crowd := &l[running], &l[starting], &l[crowded]
	switch {
	case run.n > 0 && (run.room || start.n == 0):
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
	n    int
	room bool // a machine of this kind, not only of the best, is below its soft limit
	key  key
	two  [2]int
}

// add adds a machine, if none was better.
func (g *group) add(i int, k key, s *Sight) {
	g.room = g.room || k.belowMax
	switch c := slices.Compare(k.order[:], g.key.order[:]); {
	case g.n == 0 || c < 0:
		g.n, g.key, g.two = 1, k, [2]int{i, i}
	case c == 0:
		// Each pair of those seen so far is equally likely (reservoir sampling).
		if g.n++; g.n == 2 {
			g.two[1] = i
		} else if j := s.Rand.IntN(g.n); j < 2 {
			g.two[j] = i
		}
	}
}

// pick returns the less loaded of the two, by what they can do.
func (g *group) pick(list []route.Backend, s *Sight) int {
	if g.n == 1 {
		return g.two[0]
	}
	a, b := &list[g.two[0]], &list[g.two[1]]
	x := s.Load(a).Use * max(b.Service.Concurrency.Soft, 1)
	y := s.Load(b).Use * max(a.Service.Concurrency.Soft, 1)
	if x == y {
		return g.two[s.Rand.IntN(2)]
	}
	if x < y {
		return g.two[0]
	}
	return g.two[1]
}

// unfit returns why no request goes to a machine, whatever others are there; empty
// for one that may be used.
func unfit(b *route.Backend) string {
	switch {
	case b.Never != "":
		return b.Never
	case b.Cordoned:
		return "it is cordoned"
	case b.Failing != "":
		return "check " + b.Failing + " fails"
	case b.Runs() || b.Coming() || b.Startable():
		return ""
	case b.Spare:
		return "it is " + string(b.State) + ", and stands by for another machine"
	case b.State == bourse.StateFailed:
		return "it could not be started"
	case b.State == bourse.StateStopped || b.State == bourse.StateSuspended:
		return "it is " + string(b.State) + ", and has no autostart"
	}
	return "it is " + string(b.State)
}
