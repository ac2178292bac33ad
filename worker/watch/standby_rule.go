package watch

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// Host is what is known of the worker that a machine's id names.
type Host string

// What is known of a worker.
const (
	HostUnknown   Host = ""          // it never was a member, as far as is known
	HostHeard     Host = "heard"     // it is a member
	HostLost      Host = "lost"      // it is not heard from
	HostForgotten Host = "forgotten" // an operator says that it will not come back
)

// StandbySight holds a worker's knowledge of an app's machines and their workers.
type StandbySight struct {
	Machines map[bourse.MachineID]*bourse.Machine // as they were published last
	Host     func(tag bourse.WorkerTag) Host
	// Wanted are the machines that were to run when they were last in the view:
	// a worker that is forgotten takes them out of it.
	Wanted map[bourse.MachineID]bool
}

// StandbyAct is an action on a standby.
type StandbyAct string

// The acts.
const (
	StayStandby StandbyAct = ""
	Promote     StandbyAct = "stand in"   // start it
	Demote      StandbyAct = "stand down" // stop it
	Rearm       StandbyAct = "rest"       // note that it may stand in again
)

// StandbyVerdict is the decision about a standby. It is carried out once it has been
// the same for some time.
type StandbyVerdict struct {
	Act     StandbyAct
	Primary bourse.MachineID // the machine that it is about
	After   time.Duration    // how long the verdict must have been the same, but for this time and the reason
	Why     string
}

// settleLeast is the least time in which what a worker publishes has reached the
// others: a start of another spare, or how machines are on a host that has come back.
const settleLeast = 2 * time.Second

// Pending is a verdict whose time has not come, or that was begun. Its zero value is
// none.
type Pending struct {
	verdict StandbyVerdict
	since   time.Time
	tried   time.Time // zero: not yet
}

// standbyRetry is the time after which something is tried again that had no effect.
const standbyRetry = 5 * time.Second

// Due reports whether v, the verdict of now, is to be acted on now, and otherwise
// how long to wait.
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

// Settle is the time by which each spare waits longer than the one before it, and
// for which a machine must run again before its spare stands down.
func Settle(patience time.Duration) time.Duration { return max(settleLeast, patience/2) }

// DecideStandby returns what is to be done with a machine of this worker, which stands by
// for others. It is a pure function of its arguments: self is the worker's own
// record, and all else is what it knows of others.
//
// A spare stands in for a machine whose worker is lost or forgotten, or that could
// not be started, and that no other spare stands in for. Of the spares that see one
// another the one with the least id goes first, and each of the others waits longer.
// It stands down when the machine runs again, or when another spare with a lesser id
// stands in for it too.
func DecideStandby(self *bourse.Machine, s *StandbySight, patience time.Duration) StandbyVerdict {
	list := self.Config.Standbys
	if primary := self.Boot.StandsIn; primary != "" {
		if !slices.Contains(list, primary) { // someone has taken the machine off its list: it is theirs
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

// standingIn is Decide for a machine that stands in for another, or did until it
// ended.
func (s *StandbySight) standingIn(self *bourse.Machine, primary bourse.MachineID, patience time.Duration) StandbyVerdict {
	m, heard := s.Machines[primary], s.Host(primary.Tag()) == HostHeard
	_, _, lost := s.lost(primary, patience)
	switch {
	case !runs(self):
		if !lost && heard {
			return StandbyVerdict{Act: Rearm, Primary: primary}
		}
		return StandbyVerdict{} // it ended, by itself or as someone asked: once is enough
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

// lost reports whether a machine is to be stood in for, why, and after which time.
// One that was stopped or destroyed is not lost.
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

// spares returns the other machines that stand by for one, on workers that are
// heard from.
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

// covered reports whether another spare stands in for a machine, or did until it
// was stopped, or runs since someone has started it.
func (s *StandbySight) covered(self *bourse.Machine, primary bourse.MachineID) bool {
	return slices.ContainsFunc(s.spares(self, primary), func(m *bourse.Machine) bool {
		if m.Boot.StandsIn == "" {
			return runs(m)
		}
		return m.Boot.StandsIn == primary && m.State != bourse.StateFailed
	})
}

// before counts the spares that are to stand in sooner than self.
func (s *StandbySight) before(self *bourse.Machine, primary bourse.MachineID) (n int) {
	for _, m := range s.spares(self, primary) {
		if m.ID < self.ID && m.State == bourse.StateStopped && m.Boot.StandsIn == "" {
			n++
		}
	}
	return n
}

// Wanted reports whether a machine is to run, as far as its state says: one that was
// asked to stop, or has ended, is not.
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
