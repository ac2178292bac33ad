package watch

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// Host is the state of the worker that a machine's id names.
type Host string

// The states of a worker.
const (
	HostUnknown   Host = ""          // it was never seen as a member
	HostHeard     Host = "heard"     // it is a member
	HostLost      Host = "lost"      // it is no longer a member
	HostForgotten Host = "forgotten" // an operator has removed it
)

// StandbySight holds a worker's information about an app's machines and their workers.
type StandbySight struct {
	Machines map[bourse.MachineID]*bourse.Machine // as they were last published
	Host     func(tag bourse.WorkerTag) Host
	// Wanted contains the machines that should have been running when they were last in
	// the view. Removing a worker removes its machines from the view.
	Wanted map[bourse.MachineID]bool
}

// StandbyAct is an action on a standby.
type StandbyAct string

// The actions.
const (
	StayStandby StandbyAct = ""
	Promote     StandbyAct = "stand in"   // start it
	Demote      StandbyAct = "stand down" // stop it
	Rearm       StandbyAct = "rest"       // record that it may be promoted again
)

// StandbyVerdict is the decision about a standby. It is carried out once it has been
// the same for some time.
type StandbyVerdict struct {
	Act     StandbyAct
	Primary bourse.MachineID // the machine that it is about
	After   time.Duration    // how long Act and Primary must have been the same
	Why     string
}

// settleLeast is the minimum time for a worker's changes to reach the others: the start of
// another spare, or the states of machines on a host that has returned.
const settleLeast = 2 * time.Second

// Pending is a verdict that is not due yet, or whose action has begun. The zero value
// contains no verdict.
type Pending struct {
	verdict StandbyVerdict
	since   time.Time
	tried   time.Time // of the last attempt; zero for none
}

// standbyRetry is the time after which an action that had no effect is repeated.
const standbyRetry = 5 * time.Second

// Due reports whether v, the present verdict, must be carried out now, and how long to wait
// before the next call.
func (p *Pending) Due(v StandbyVerdict, now time.Time) (due bool, wait time.Duration) {
	if p.verdict.Act != v.Act || p.verdict.Primary != v.Primary {
		*p = Pending{since: now}
	}
	p.verdict = v
	at := p.since.Add(v.After)
	if again := p.tried.Add(standbyRetry); !p.tried.IsZero() && again.After(at) {
		at = again
	}
	if now.Before(at) {
		return false, at.Sub(now)
	}
	p.tried = now
	return true, standbyRetry
}

// Settle returns the time by which each spare waits longer than the previous one, and for
// which a machine must run again before its spare is demoted.
func Settle(patience time.Duration) time.Duration { return max(settleLeast, patience/2) }

// DecideStandby decides about a machine of this worker that stands by for others. It is a
// pure function of its arguments. self is the worker's own record of the machine.
//
// A spare is promoted if a primary machine's worker is lost or forgotten, or the machine
// could not be started, and no other spare replaces it. Of several spares, the one with the
// lowest id is promoted first, and each of the others waits longer. A spare is demoted when
// the primary machine runs again, or when another spare with a lower id replaces it, too.
func DecideStandby(self *bourse.Machine, s *StandbySight, patience time.Duration) StandbyVerdict {
	list := self.Config.Standbys
	if primary := self.Boot.StandsIn; primary != "" {
		if !slices.Contains(list, primary) { // a user has removed the primary machine from the list, and controls this machine now
			return StandbyVerdict{}
		}
		return s.standingIn(self, primary, patience)
	}
	if self.State != bourse.StateStopped && self.State != bourse.StateFailed {
		return StandbyVerdict{}
	}
	for _, primary := range list {
		why, after, lost := s.lost(primary, patience)
		if !lost || primary == self.ID || s.covered(self, primary) {
			continue
		}
		after += time.Duration(s.before(self, primary)) * Settle(patience)
		return StandbyVerdict{Promote, primary, after, why}
	}
	return StandbyVerdict{}
}

// standingIn is DecideStandby for a machine that was promoted, and may have ended since.
func (s *StandbySight) standingIn(self *bourse.Machine, primary bourse.MachineID, patience time.Duration) StandbyVerdict {
	m, heard := s.Machines[primary], s.Host(primary.Tag()) == HostHeard
	_, _, lost := s.lost(primary, patience)
	switch {
	case !runs(self):
		if !lost && heard {
			return StandbyVerdict{Act: Rearm, Primary: primary}
		}
		return StandbyVerdict{} // it was promoted once and has ended, which is enough
	case heard && m != nil && m.State == bourse.StateStarted:
		return StandbyVerdict{Demote, primary, Settle(patience), fmt.Sprintf("machine %s runs again", primary)}
	}
	for _, other := range s.spares(self, primary) {
		if other.ID < self.ID && other.Boot.StandsIn == primary && other.State == bourse.StateStarted {
			return StandbyVerdict{Demote, primary, Settle(patience), fmt.Sprintf("machine %s stands in for %s too", other.ID, primary)}
		}
	}
	return StandbyVerdict{}
}

// lost reports whether a machine must be replaced by a spare, why, and after which time. A
// machine that was stopped or destroyed is not lost.
func (s *StandbySight) lost(id bourse.MachineID, patience time.Duration) (why string, after time.Duration, lost bool) {
	m := s.Machines[id]
	switch s.Host(id.Tag()) {
	case HostHeard:
		if m != nil && m.State == bourse.StateFailed {
			return fmt.Sprintf("machine %s could not be started on worker %s", id, m.Worker), patience, true
		}
	case HostLost:
		if m != nil && Wanted(m) {
			return fmt.Sprintf("machine %s: its worker %s is not heard from", id, m.Worker), patience, true
		}
	case HostForgotten:
		if s.Wanted[id] {
			return fmt.Sprintf("machine %s: its worker was forgotten", id), 0, true
		}
	case HostUnknown:
	}
	return "", 0, false
}

// spares returns the other machines that stand by for a primary machine, on workers that
// are members.
func (s *StandbySight) spares(self *bourse.Machine, primary bourse.MachineID) (out []*bourse.Machine) {
	for _, m := range s.Machines {
		if m.ID == self.ID || s.Host(m.ID.Tag()) != HostHeard {
			continue
		}
		if slices.Contains(m.Config.Standbys, primary) {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b *bourse.Machine) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// covered reports whether another spare of a machine was promoted for it, even if it has
// stopped since, or was started by a user.
func (s *StandbySight) covered(self *bourse.Machine, primary bourse.MachineID) bool {
	return slices.ContainsFunc(s.spares(self, primary), func(m *bourse.Machine) bool {
		if m.Boot.StandsIn == "" {
			return runs(m)
		}
		return m.Boot.StandsIn == primary && m.State != bourse.StateFailed
	})
}

// before returns the number of spares that are promoted before self.
func (s *StandbySight) before(self *bourse.Machine, primary bourse.MachineID) (n int) {
	for _, m := range s.spares(self, primary) {
		if m.ID < self.ID && m.State == bourse.StateStopped && m.Boot.StandsIn == "" {
			n++
		}
	}
	return n
}

// Wanted reports whether a machine should run according to its state. A machine that was
// stopped, or whose program has ended, should not.
func Wanted(m *bourse.Machine) bool { return runs(m) || m.State == bourse.StateFailed }

// runs reports whether a machine runs or is about to.
func runs(m *bourse.Machine) bool {
	switch m.State {
	case bourse.StateStarting, bourse.StateStarted, bourse.StateRestarting, bourse.StateReplacing:
		return true
	case bourse.StateCreated, bourse.StateSuspending, bourse.StateSuspended, bourse.StateStopping, bourse.StateStopped,
		bourse.StateFailed, bourse.StateDestroying, bourse.StateDestroyed:
	}
	return false
}
