package replication

import (
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// comparisonQuorum is the number of views that this server must compare with its own if no member
// knows the cluster, for example because all servers were started at the same time.
const comparisonQuorum = 5

// knowledge records whether this server knows its cluster, that is, whether it has received all of
// the other members' data since it started. Until then, it must not report that something does not
// exist.
//
// A server knows its cluster once it has compared its view with a member that knows the cluster,
// and has received all data that the member had. If no member knows the cluster, it is enough to
// compare with comparisonQuorum members, or with all other members if there are fewer. A server
// that has not met any other member does not know its cluster, because it cannot tell whether it is
// the only server or merely the first one to return.
type knowledge struct {
	known chan struct{} // closed once the server knows its cluster

	mu       sync.Mutex
	compared map[bourse.WorkerID]bool // members compared with so far; nil once the cluster is known
}

func (k *knowledge) init() {
	k.known = make(chan struct{})
	k.compared = map[bourse.WorkerID]bool{}
}

// Known returns a channel that is closed once this server knows its cluster. From then on, it has
// all data that the other members had when it started.
func (r *Replicator) Known() <-chan struct{} { return r.knowledge.known }

func (r *Replicator) knowsCluster() bool {
	select {
	case <-r.knowledge.known:
		return true
	default:
		return false
	}
}

// noteCompared records that this server has received all data that a member had. fresh is true if that member does not
// know the cluster yet.
func (r *Replicator) noteCompared(from bourse.WorkerID, fresh bool) {
	others := r.others()
	k := &r.knowledge
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.compared == nil {
		return
	}
	k.compared[from] = true
	left := slices.ContainsFunc(others, func(m bourse.Member) bool { return !k.compared[m.ID] })
	if fresh && left && len(k.compared) < comparisonQuorum {
		return
	}
	k.compared = nil
	close(k.known)
}

// uncompared moves members to the front of the list if this server has not yet compared its view
// with theirs, and returns the number of such members. Once this server knows its cluster,
// uncompared returns 0.
func (k *knowledge) uncompared(members []bourse.Member) int {
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

// complete reports whether this server has all the data that the peer reported in comparison c.
func (r *Replicator) complete(c *comparison) bool {
	if !c.complete {
		return false
	}
	now := time.Now()
	for s, h := range c.heads {
		// Ignore streams for which a repair has recently failed.
		if s.Site != r.config.Self.ID && h.Seq > r.view.Head(s) && !r.repair.backingOff(streamName(s), now) {
			return false
		}
	}
	return true
}
