package gossip

import (
	"cmp"
	"time"
)

// Timing determines how fast lost members are detected. The zero value means the defaults, which
// suit a group that spans the world.
//
// Detecting a lost member takes three steps. First, some other member probes it. Every member
// probes one random member per Probe interval, so this takes about one interval, whatever the
// group's size. Second, the probe fails after another interval, during which other members probe
// it on behalf of the first one. Third, the member is a suspect for Suspicion × Probe × max(1,
// log10(n)), or up to twice as long if only one member suspects it. During this time, the member
// can refute the suspicion. With the defaults this takes 2 to 2.5 s for up to 10 members and 3 to
// 4 s for 100, within the guaranteed 5 s.
type Timing struct {
	// Probe is the time between probes; default 400 ms. It must exceed the longest round trip
	// between members, which is 350 ms across the world.
	Probe time.Duration
	// ProbeTimeout is the time after which other members are asked to probe; default 150 ms. Twice
	// this value plus a short round trip must be less than Probe, because the members that are
	// asked report a failure after another ProbeTimeout. If they do not report in time, memberlist
	// considers this member unhealthy and makes it probe less often.
	ProbeTimeout time.Duration
	// Suspicion is the suspicion factor in the formula above; default 3. With the default, one
	// other member must confirm a suspicion, and a process that is frozen for a second is not
	// declared lost.
	Suspicion int
	// Gossip is the time between messages; default 100 ms.
	Gossip time.Duration
	// PushPull is the interval at which a member exchanges the whole list with another member,
	// which repairs what gossip has missed; default 5 s, longer in large groups.
	PushPull time.Duration
	// Rejoin is the interval at which this member calls missing members;
	// default 10 s.
	Rejoin time.Duration
}

// maxSuspicion is the factor by which a suspicion is prolonged if no other member confirms it.
const maxSuspicion = 2

// retransmit determines how often each member forwards an update: retransmit × ⌈log10(n+1)⌉ times,
// for example 12 times in a group of 10 to 99 members. If each member forwards an update k times,
// a member misses it with a probability of about e^-k. In tests with k = 8 and 25 members that
// joined at the same time, some member missed another one in every fifth run.
const retransmit = 6

// maxHealthMultiplier is the maximum factor by which an unhealthy member slows down its probes.
const maxHealthMultiplier = 3

// streamTimeout is the time limit of each dial and exchange over TCP. A member that is calling a
// dead host may take this long to stop.
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
