package gossip

import (
	"cmp"
	"time"
)

// Timing says how fast members are found lost. The zero value means the
// defaults, which are meant for one group across the world.
//
// A lost member is found in three parts. Some other member probes it: with
// everybody probing one member, in random order, each Probe, that takes about
// one Probe whatever the size. The probe fails after another Probe, during
// which others try on our behalf. Then it is suspected for Suspicion × Probe ×
// max(1, log10(n)), in which it may refute, and up to twice as long when only
// one member suspects it. With the defaults that is 2 to 2.5 s for up to 10
// members and 3 to 4 s for 100: within the promise of 5 s.
type Timing struct {
	// Probe is the time from probe to probe; default 400 ms. It must exceed
	// the longest round trip between members: 350 ms across the world.
	Probe time.Duration
	// ProbeTimeout is when others are asked to try; default 150 ms. Twice it
	// and a short round trip must fit into Probe: members asked to help say so
	// after another ProbeTimeout, and silence from them counts as our own bad
	// health, which slows us down.
	ProbeTimeout time.Duration
	// Suspicion is the factor above; default 3: one other member must
	// confirm, and a process that is frozen for a second is not lost.
	Suspicion int
	// Gossip is the time from message to message; default 100 ms.
	Gossip time.Duration
	// PushPull is how often all is compared with one other member, which
	// repairs what gossip has missed; default 5 s, longer in large groups.
	PushPull time.Duration
	// Rejoin is how often members that are missing are called; default 10 s.
	Rejoin time.Duration
}

// maxSuspicion is how many times longer a member is suspected when no other
// confirms it.
const maxSuspicion = 2

// retransmit is how often each member passes news on, times log10(n+1) rounded
// up: 12 times for 10 to 99 members. A member misses news with a chance of
// about e to the minus that; with 8 times, one of 25 joining side by side was
// missed somewhere in one test of five.
const retransmit = 6

// maxSlower bounds how much slower a member probes that thinks itself unwell.
const maxSlower = 3

// streamTimeout bounds each dial and exchange over TCP, and so how long a
// member may take to end while it calls a host that is gone.
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
