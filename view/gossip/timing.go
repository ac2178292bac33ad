package gossip

import (
	"cmp"
	"time"
)

// Timing determines how fast lost members are detected. A zero field means the default. The
// defaults suit a group that spans the world.
//
// A lost member is detected in three steps. First, some other member probes it. Every member probes
// one random member per Probe interval, so this takes about one interval, regardless of the group's
// size. Second, the probe fails after another interval, during which other members also probe the
// lost member on behalf of the first one. Third, the lost member is a suspect for Suspicion × Probe
// × max(1, log10(n)), or up to twice as long if only one member suspects it. During this time, the
// member could refute the suspicion. With the defaults, all this takes 2 to 2.5 s in a group of up
// to 10 members, and 3 to 4 s in a group of 100 members, which is within the guaranteed 5 s.
type Timing struct {
	// Probe is the time between probes; default 400 ms. It must exceed the longest round trip
	// between members, which is 350 ms across the world.
	Probe time.Duration
	// ProbeTimeout is how long a member may take to answer before this member also asks others to
	// probe it; default 150 ms. If their probes fail, they report the failure after another
	// ProbeTimeout. Twice ProbeTimeout plus a short round trip must therefore be less than Probe. If
	// the reports do not arrive in time, memberlist considers this member unhealthy, and makes it
	// probe less often.
	ProbeTimeout time.Duration
	// Suspicion is the first factor in the formula for the duration of a suspicion (see Timing);
	// default 3. With the default, a suspicion ends after its minimum duration once one other
	// member confirms it, and a process that is frozen for a second does not count as lost.
	Suspicion int
	// Gossip is the interval at which this member sends gossip to random members; default 100 ms.
	Gossip time.Duration
	// PushPull is the interval at which this member exchanges the whole list with another member,
	// to find changes that gossip has missed; default 5 s. In large groups, memberlist increases
	// it.
	PushPull time.Duration
	// Rejoin is the interval at which this member calls missing members;
	// default 10 s.
	Rejoin time.Duration
}

// maxSuspicion determines how many times longer a suspicion lasts if no other member confirms it.
const maxSuspicion = 2

// retransmit determines how often each member forwards an update: retransmit × ⌈log10(n+1)⌉ times,
// for example 12 times in a group of 10 to 99 members. If each member forwards an update k times, a
// member misses it with a probability of about e^-k. In tests in which 25 members joined at the
// same time, k = 8 was not enough: in every fifth run, some member did not learn about another one.
const retransmit = 6

// maxHealthMultiplier is the maximum factor by which an unhealthy member slows down its probes.
const maxHealthMultiplier = 3

// streamTimeout is the time limit for each dial and for each exchange over TCP. A member that is
// calling a dead host may take this long to stop.
const streamTimeout = 3 * time.Second

func (t Timing) withDefaults() Timing {
	return Timing{
		Probe:        cmp.Or(t.Probe, 400*time.Millisecond),
		ProbeTimeout: cmp.Or(t.ProbeTimeout, 150*time.Millisecond),
		Suspicion:    cmp.Or(t.Suspicion, 3),
		Gossip:       cmp.Or(t.Gossip, 100*time.Millisecond),
		PushPull:     cmp.Or(t.PushPull, 5*time.Second),
		Rejoin:       cmp.Or(t.Rejoin, 10*time.Second),
	}
}
