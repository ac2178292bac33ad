package balance

import (
	"maps"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy/route"
)

// A machine that has failed becomes the last choice, because another machine is more likely to succeed. This penalty
// lasts for one second at first, and doubles with each further failure, up to maxDoublings times. An app's only machine
// continues to be used.
const (
	firstPenalty = time.Second
	maxDoublings = 5
	forgetAfter  = time.Minute // after this time without another failure, earlier failures no longer count
)

// failures records recent failures of a machine or worker. The zero value records no failures.
type failures struct {
	count int // consecutive failures
	last  time.Time
	until time.Time

	// instance is the version of the machine, and boot is the number of its latest start, at the time of the failure.
	// They are set only for a machine, not for a worker.
	instance bourse.InstanceID
	boot     int

	machine bourse.MachineID // the machine that failed last; set only for a worker
}

// appliesTo reports whether these failures still make m the last choice. They no longer do once the machine has been
// restarted or updated.
func (s *failures) appliesTo(m *route.Backend, now time.Time) bool {
	if !now.Before(s.until) || s.instance != m.Instance {
		return false
	}
	return s.boot == m.Boot || !m.Running() // a failed restart does not end the penalty
}

// add records the failure of a request that began at the given time. Requests that were in progress
// at the same time count as a single failure.
func (s *failures) add(began, now time.Time) {
	switch {
	case s.count == 0 || now.Sub(s.until) > forgetAfter:
		s.count = 1
	case !began.After(s.last):
	default:
		s.count++
	}
	s.last, s.until = now, now.Add(firstPenalty<<min(s.count-1, maxDoublings))
}

// recordFailure records that a slot's machine has failed. If another machine on the same worker failed recently, it
// also records that the worker has failed. The caller holds the mutex.
func (b *Balancer) recordFailure(t *Slot) {
	now, m := time.Now(), &t.backend
	b.prune(now)
	u := b.machines[m.Machine]
	if u.lastSuccess.After(t.began) {
		return // the machine has answered later requests, so this request is the more likely cause
	}
	if s := &u.failures; s.instance != m.Instance || s.boot != m.Boot && m.Running() {
		*s = failures{instance: m.Instance, boot: m.Boot}
	}
	u.failures.add(t.began, now)
	w := b.workers[m.Worker]
	switch {
	case w == nil:
		b.workers[m.Worker] = &failures{machine: m.Machine, last: now} // count stays 0 until another machine on the worker fails
	case w.machine != m.Machine || w.count > 0:
		if w.count > 0 || now.Sub(w.last) < firstPenalty<<maxDoublings {
			w.add(t.began, now)
		}
		w.machine, w.last = m.Machine, now
	default:
		w.last = now
	}
}

// recordSuccess records that a slot's machine has answered. It resets the machine's failures only if the request began
// after the latest failure. The caller holds the mutex.
func (b *Balancer) recordSuccess(t *Slot) {
	u := b.machines[t.backend.Machine]
	u.lastSuccess = time.Now()
	if t.began.After(u.failures.last) {
		u.failures = failures{}
	}
	if w := b.workers[t.backend.Worker]; w != nil && t.began.After(w.last) {
		delete(b.workers, t.backend.Worker)
	}
}

// prune removes old failures if there are many entries. The caller holds the mutex.
func (b *Balancer) prune(now time.Time) {
	const much = 4096
	if len(b.machines) > much {
		maps.DeleteFunc(b.machines, func(_ bourse.MachineID, u *machineLoad) bool {
			return u.inProgress == 0 && now.Sub(u.failures.until) > forgetAfter
		})
	}
	if len(b.workers) > much {
		maps.DeleteFunc(b.workers, func(_ bourse.WorkerID, s *failures) bool { return now.Sub(s.last) > forgetAfter })
	}
}
