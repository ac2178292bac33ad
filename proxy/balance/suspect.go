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
	firstSuspicion = time.Second
	mostDoublings  = 5
	forgetAfter    = time.Minute // without another failure
)

// suspicion is what is held against a machine or a worker. Its zero value is nothing.
type suspicion struct {
	n      int // failures in a row
	failed time.Time
	until  time.Time

	// Of machines: what failed. Of workers: which machine of theirs failed last.
	instance bourse.InstanceID
	boot     int
	machine  bourse.MachineID
}

// of reports whether the suspicion is still of a machine as it is now: not of one that
// has started again, or has another version.
func (s *suspicion) of(m *route.Backend, now time.Time) bool {
	if !now.Before(s.until) || s.instance != m.Instance {
		return false
	}
	return s.boot == m.Boot || !m.Runs() // starts that fail count, too
}

// add adds a failure of something that began at a time. Requests that were in progress
// together fail together: they are one failure.
func (s *suspicion) add(began, now time.Time) {
	switch {
	case s.n == 0 || now.Sub(s.until) > forgetAfter:
		s.n = 1
	case !began.After(s.failed):
	default:
		s.n++
	}
	s.failed, s.until = now, now.Add(firstSuspicion<<min(s.n-1, mostDoublings))
}

// suspect notes that a turn's machine failed, and its worker when another machine of
// the worker's has just failed, too. The caller holds the mutex.
func (b *Balancer) suspect(t *Turn) {
	now, m := time.Now(), &t.backend
	b.forget(now)
	u := b.machines[m.Machine]
	if u.answered.After(t.began) {
		return // it has answered others since: what failed is more likely due to this request
	}
	if s := &u.suspect; s.instance != m.Instance || s.boot != m.Boot && m.Runs() {
		*s = suspicion{instance: m.Instance, boot: m.Boot}
	}
	u.suspect.add(t.began, now)
	w := b.workers[m.Worker]
	switch {
	case w == nil:
		b.workers[m.Worker] = &suspicion{machine: m.Machine, failed: now} // n is 0: so far it is the machine's
	case w.machine != m.Machine || w.n > 0:
		if w.n > 0 || now.Sub(w.failed) < firstSuspicion<<mostDoublings {
			w.add(t.began, now)
		}
		w.machine, w.failed = m.Machine, now
	default:
		w.failed = now
	}
}

// trust notes that a turn's machine answered. What began before the last failure says
// nothing of what came after. The caller holds the mutex.
func (b *Balancer) trust(t *Turn) {
	u := b.machines[t.backend.Machine]
	u.answered = time.Now()
	if t.began.After(u.suspect.failed) {
		u.suspect = suspicion{}
	}
	if w := b.workers[t.backend.Worker]; w != nil && t.began.After(w.failed) {
		delete(b.workers, t.backend.Worker)
	}
}

// forget forgets what has not failed for long, when there is much. The caller holds the
// mutex.
func (b *Balancer) forget(now time.Time) {
	const much = 4096
	if len(b.machines) > much {
		maps.DeleteFunc(b.machines, func(_ bourse.MachineID, u *use) bool { return u.ours == 0 && now.Sub(u.suspect.until) > forgetAfter })
	}
	if len(b.workers) > much {
		maps.DeleteFunc(b.workers, func(_ bourse.WorkerID, s *suspicion) bool { return now.Sub(s.failed) > forgetAfter })
	}
}
