package replication

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// Bounds on the pause after a failed call, during which a server is not called again.
const (
	minPause = 500 * time.Millisecond
	maxPause = 30 * time.Second
)

// peers records which servers should not be called for some time, because they have requested a
// pause or have not responded.
type peers struct {
	mu     sync.Mutex
	paused map[bourse.WorkerID]pause
}

type pause struct {
	until  time.Time
	length time.Duration
}

func newPeers() *peers { return &peers{paused: map[bourse.WorkerID]pause{}} }

// pauseFor records that a server has requested a pause of the given length, during which it is not
// called.
func (p *peers) pauseFor(id bourse.WorkerID, now time.Time, length time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused[id] = pause{now.Add(min(length, maxPause)), p.paused[id].length}
}

// failed records that a call to a server has failed. The server is then not called for some time,
// which grows with each consecutive failure.
func (p *peers) failed(id bourse.WorkerID, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	length := min(max(2*p.paused[id].length, minPause), maxPause)
	p.paused[id] = pause{now.Add(length/2 + rand.N(length)), length}
}

func (p *peers) answered(id bourse.WorkerID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.paused, id)
}

// callable reports whether a server may be called now.
func (p *peers) callable(id bourse.WorkerID, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.paused[id].until.After(now)
}

// shuffled returns the members in random order, in two lists: those that may be called now, and those that
// may not.
func (p *peers) shuffled(members []bourse.Member, now time.Time) (callable, resting []bourse.Member) {
	rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	for _, m := range members {
		if p.callable(m.ID, now) {
			callable = append(callable, m)
		} else {
			resting = append(resting, m)
		}
	}
	return callable, resting
}
