package balance

import (
	"maps"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy/route"
)

// A machine that has failed is the last choice for a second, and for twice as long each
// time that it fails again when it is tried: a retry to another machine costs a
// client less than the same failure once more. No one is shut out: what is the only
// one is tried each time.
const (
	firstPenalty = time.Second
	maxDoublings = 5
	forgetAfter  = time.Minute // without another failure
)

// suspicion is what is held against a machine or a worker. Its zero value is nothing.
type failures struct {
	count int // failures in a row
	last  time.Time
	until time.Time

	// Of machines: what failed. Of workers: which machine of theirs failed last.
	instance bourse.InstanceID
	boot     int
	machine  bourse.MachineID
}

// of reports whether the suspicion is still of a machine as it is now: not of one that
// has started again, or has another version.
func (s *failures) appliesTo(m *route.Backend, now time.Time) bool {
	if !now.Before(s.until) || s.instance != m.Instance {
		return false
	}
	return s.boot == m.Boot || !m.Running() // starts that fail count, too
}

// add adds a failure of something that began at a time. Requests that were in progress
// together fail together: they are one failure.
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

// suspect notes that a turn's machine failed, and its worker when another machine of
// the worker's has just failed, too. The caller holds the mutex.
func (b *Balancer) recordFailure(t *Slot) {
	now, m := time.Now(), &t.backend
	b.prune(now)
	u := b.machines[m.Machine]
	if u.lastSuccess.After(t.began) {
		return // it has answered others since: what failed is more likely due to this request
	}
	if s := &u.failures; s.instance != m.Instance || s.boot != m.Boot && m.Running() {
		*s = failures{instance: m.Instance, boot: m.Boot}
	}
	u.failures.add(t.began, now)
	w := b.workers[m.Worker]
	switch {
	case w == nil:
		b.workers[m.Worker] = &failures{machine: m.Machine, last: now} // n is 0: so far it is the machine's
	case w.machine != m.Machine || w.count > 0:
		if w.count > 0 || now.Sub(w.last) < firstPenalty<<maxDoublings {
			w.add(t.began, now)
		}
		w.machine, w.last = m.Machine, now
	default:
		w.last = now
	}
}

// trust notes that a turn's machine answered. What began before the last failure says
// nothing of what came after. The caller holds the mutex.
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

// forget forgets what has not failed for long, when there is much. The caller holds the
// mutex.
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
