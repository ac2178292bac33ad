package gossip

import (
	"cmp"
	"time"
)

// Timing determines how fast lost members are detected. The zero value means the defaults, which are suitable for one
// group across the world.
//
// Detecting a lost member takes three steps. Some other member probes it: since all members probe one member each, in
// random order, every Probe, that takes about one Probe whatever the group's size. The probe fails after another
// Probe, during which other members try on behalf of the prober. Then the member is suspected for Suspicion × Probe ×
// max(1, log10(n)), during which it may refute, and up to twice as long if only one member suspects it. With the
// defaults this takes 2 to 2.5 s for up to 10 members and 3 to 4 s for 100, within the guaranteed 5 s.
type Timing struct {
	// Probe is the time between probes; default 400 ms. It must exceed the longest round trip between members: 350 ms
	// across the world.
	Probe time.Duration
	// ProbeTimeout is the time after which other members are asked to probe; default 150 ms. Twice this value plus a
	// short round trip must fit into Probe: members asked to help report failure after another ProbeTimeout, and
	// their silence counts as our own bad health, which slows this member down.
	ProbeTimeout time.Duration
	// Suspicion is the factor above; default 3: one other member must confirm, and a process that is frozen for a
	// second is not lost.
	Suspicion int
	// Gossip is the time between messages; default 100 ms.
	Gossip time.Duration
	// PushPull is the interval of full exchanges with one other member, which repair what gossip has missed; default
	// 5 s, longer in large groups.
	PushPull time.Duration
	// Rejoin is the interval at which missing members are called; default 10 s.
	Rejoin time.Duration
}

// maxSuspicion is the factor by which a suspicion lasts longer if no other member confirms it.
const maxSuspicion = 2

// retransmit, times log10(n+1) rounded up, is how often each member forwards an update: 12 times for 10 to 99
// members. A member misses an update with a probability of about e to the minus that number. With 8 times, one of 25
// concurrently joining members was missed somewhere in one test out of five.
const retransmit = 6

// maxSlower is the maximum factor by which a member with bad health slows down its probes.
const maxSlower = 3

// streamTimeout is the time limit of each dial and exchange over TCP, and so of the end of a member that is calling a
// dead host.
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
