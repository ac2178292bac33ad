package gossip

import (
	"cmp"
	"time"
)

// Timing determines how fast lost members are detected. The zero value means the defaults, which are suitable for one
// group across the world.
//
// Detecting a lost member takes three steps. First, some other member probes it. Every member
// probes one random member per Probe interval, so this takes about one interval, whatever the
// group's size. Second, the probe fails after another interval, during which other members have
// tried on behalf of the prober. Third, the member is suspected for Suspicion × Probe × max(1,
// log10(n)), or up to twice as long if only one member suspects it. During this time the member
// may refute the suspicion. With the defaults this takes 2 to 2.5 s for up to 10 members and 3
// to 4 s for 100, within the guaranteed 5 s.
type Timing struct {
	// Probe is the time between probes; default 400 ms. It must exceed the longest round trip
	// between members, which is 350 ms across the world.
	Probe time.Duration
	// ProbeTimeout is the time after which other members are asked to probe; default 150 ms.
	// Twice this value plus a short round trip must be less than Probe, because the members that
	// are asked report a failure after another ProbeTimeout. If they do not report in time,
	// memberlist considers this member unhealthy, and slows down its probes.
	ProbeTimeout time.Duration
	// Suspicion is the suspicion factor in the formula above; default 3. With the default, one
	// other member must confirm a suspicion, and a process that is frozen for a second is not
	// declared lost.
	Suspicion int
	// Gossip is the time between messages; default 100 ms.
	Gossip time.Duration
	// PushPull is the interval of full exchanges with one other member, which repair what gossip has missed; default
	// 5 s, longer in large groups.
	PushPull time.Duration
	// Rejoin is the interval at which this member calls missing members;
	// default 10 s.
	Rejoin time.Duration
}

// maxSuspicion is the factor by which a suspicion is prolonged if no other member confirms it.
const maxSuspicion = 2

// retransmit, times log10(n+1) rounded up, is the number of times that each member forwards an
// update, for example 12 times in a group of 10 to 99 members. If members forward an update k
// times, a member misses it with a probability of about e^-k. With k = 8, in one test run out of
// five, some member missed one of 25 members that joined at the same time.
const retransmit = 6

// maxSlower is the maximum factor by which an unhealthy member slows down its probes.
const maxSlower = 3

// streamTimeout is the time limit of each dial and exchange over TCP. It also bounds how long a
// member that is calling a dead host takes to stop.
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
