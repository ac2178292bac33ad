package replication

import (
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// enoughNew is how many members are compared with when none of them knows the
// cluster: all servers of it may have been started together.
const enoughNew = 5

// knowledge is whether this server knows its cluster: has received, since its
// start, all that the others know. Until then "there is no such thing" is
// nothing that it could say.
//
// It knows its cluster once it has compared its view with that of a member
// that itself did, and has all that the other one had; or with enoughNew
// members, or all that there are if they are fewer, when all of them are as
// new as this one. A member that has met no other knows nothing: nothing tells
// it that it is alone, and not the first to come back.
type knowledge struct {
	known chan struct{} // closed once

	mu       sync.Mutex
	compared map[bourse.WorkerID]bool // with whom, all of them new; nil once known
}

func (k *knowledge) init() {
	k.known = make(chan struct{})
	k.compared = map[bourse.WorkerID]bool{}
}

// Known returns a channel that is closed once this server knows its cluster.
// What it knows then, it does not forget.
func (r *Replicator) Known() <-chan struct{} { return r.knowledge.known }

func (r *Replicator) knows() bool {
	select {
	case <-r.knowledge.known:
		return true
	default:
		return false
	}
}

// learned notes that all that a member had is here; fresh if that one did not
// know the cluster itself.
func (r *Replicator) learned(from bourse.WorkerID, fresh bool) {
	others := r.others()
	k := &r.knowledge
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.compared == nil {
		return
	}
	k.compared[from] = true
	left := slices.ContainsFunc(others, func(m bourse.Member) bool { return !k.compared[m.ID] })
	if fresh && left && len(k.compared) < enoughNew {
		return
	}
	k.compared = nil
	close(k.known)
}

// unknown moves those members to the front that may still teach us something,
// and returns how many there are.
func (k *knowledge) unknown(members []bourse.Member) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.compared == nil {
		return 0
	}
	n := 0
	for i := range members {
		if !k.compared[members[i].ID] {
			members[n], members[i] = members[i], members[n]
			n++
		}
	}
	return n
}

// complete reports whether all that the other one had is here.
func (r *Replicator) complete(c *comparison) bool {
	if !c.all {
		return false
	}
	now := time.Now()
	for s, h := range c.heads {
		// What repairs have not brought will not come by waiting for it.
		if s.Site != r.config.Self.ID && h.Seq > r.view.Head(s) && !r.repair.resting(streamName(s), now) {
			return false
		}
	}
	return true
}
