package watch

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// Host is the state of a worker from another worker's point of view.
type Host string

// The states of a worker.
const (
	HostUnknown   Host = ""        // the worker is not a member, and the view contains none of its machines
	HostReachable Host = "heard"   // the worker is a member
	HostLost      Host = "lost"    // the worker is no longer a member
	HostRemoved   Host = "removed" // an operator has removed the worker
)

// StandbyInput contains what a worker knows about an app's machines and the workers that they run on.
type StandbyInput struct {
	Machines map[bourse.MachineID]*bourse.Machine // machines as they were last published
	Host     func(tag bourse.WorkerTag) Host
	// Wanted contains the machines that should have been running when they were last in the view. When a worker is
	// removed, its machines disappear from the view.
	Wanted map[bourse.MachineID]bool
}

// StandbyAct is an action on a standby.
type StandbyAct string

// The actions.
const (
	StayStandby  StandbyAct = ""
	Promote      StandbyAct = "promote" // start the standby
	Demote       StandbyAct = "demote"  // stop the standby
	ResetStandby StandbyAct = "reset"   // record that the standby may be promoted again
)

// StandbyDecision is a decision about a standby. It takes effect once it has remained the same for the duration After.
type StandbyDecision struct {
	Act     StandbyAct
	Primary bourse.MachineID // the machine that the standby replaces or would replace
	After   time.Duration    // how long Act and Primary must remain the same
	Why     string
}

// minSettleTime is the minimum result of SettleTime. It gives changes, such as the start of another standby, time to
// reach other workers.
const minSettleTime = 2 * time.Second

// Pending tracks a decision that is not due yet, or whose action has begun. The zero value contains no decision.
type Pending struct {
	verdict StandbyDecision
	since   time.Time
	tried   time.Time // time of the last attempt; zero if there was none
}

// standbyRetry is the delay before an action that had no effect is repeated.
const standbyRetry = 5 * time.Second

// Due updates p with the current decision, v. It reports whether v must be carried out now, and returns how long to
// wait before the next call.
func (p *Pending) Due(v StandbyDecision, now time.Time) (due bool, wait time.Duration) {
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

// SettleTime returns the interval between the promotion times of a machine's standbys: each standby waits that much
// longer than the previous one. It is also how long a machine that has returned must be running before its standby is
// demoted.
func SettleTime(failoverDelay time.Duration) time.Duration {
	return max(minSettleTime, failoverDelay/2)
}

// DecideStandby decides whether to promote, demote or reset a standby on this worker. It is a pure function of its
// arguments. self is the worker's own record of the standby.
//
// A standby is promoted if its primary machine's worker is lost or was removed, or if the primary machine could not be
// started, provided that no other standby replaces the machine. If a machine has several standbys, they are promoted in
// the order of their ids, and each waits longer than the previous one. A standby is demoted when the primary machine is
// running again, or if another standby with a lower id also replaces the machine.
func DecideStandby(self *bourse.Machine, s *StandbyInput, failoverDelay time.Duration) StandbyDecision {
	list := self.Config.Standbys
	if primary := self.Boot.PromotedFor; primary != "" {
		if !slices.Contains(list, primary) { // a user has removed the primary machine from the standby's list, so leave the standby alone
			return StandbyDecision{}
		}
		return s.decidePromoted(self, primary, failoverDelay)
	}
	if self.State != bourse.StateStopped && self.State != bourse.StateFailed {
		return StandbyDecision{}
	}
	for _, primary := range list {
		why, after, lost := s.lost(primary, failoverDelay)
		if !lost || primary == self.ID || s.covered(self, primary) {
			continue
		}
		after += time.Duration(s.before(self, primary)) * SettleTime(failoverDelay)
		return StandbyDecision{Promote, primary, after, why}
	}
	return StandbyDecision{}
}

// decidePromoted decides whether to demote or reset a promoted standby, whose program may already have exited.
func (s *StandbyInput) decidePromoted(self *bourse.Machine, primary bourse.MachineID, failoverDelay time.Duration) StandbyDecision {
	m, heard := s.Machines[primary], s.Host(primary.Tag()) == HostReachable
	_, _, lost := s.lost(primary, failoverDelay)
	switch {
	case !runs(self):
		if !lost && heard {
			return StandbyDecision{Act: ResetStandby, Primary: primary}
		}
		return StandbyDecision{} // the standby has stopped since its promotion, and is not promoted again for the same loss
	case heard && m != nil && m.State == bourse.StateStarted:
		return StandbyDecision{Demote, primary, SettleTime(failoverDelay), fmt.Sprintf("machine %s runs again", primary)}
	}
	for _, other := range s.otherStandbys(self, primary) {
		if other.ID < self.ID && other.Boot.PromotedFor == primary && other.State == bourse.StateStarted {
			return StandbyDecision{Demote, primary, SettleTime(failoverDelay), fmt.Sprintf("machine %s also replaces %s", other.ID, primary)}
		}
	}
	return StandbyDecision{}
}

// lost reports whether a standby must replace a machine. It also returns the reason, and how long the standby must
// wait. A machine that was stopped or destroyed is not lost.
func (s *StandbyInput) lost(id bourse.MachineID, failoverDelay time.Duration) (why string, after time.Duration, lost bool) {
	m := s.Machines[id]
	switch s.Host(id.Tag()) {
	case HostReachable:
		if m != nil && m.State == bourse.StateFailed {
			return fmt.Sprintf("machine %s could not be started on worker %s", id, m.Worker), failoverDelay, true
		}
	case HostLost:
		if m != nil && Wanted(m) {
			return fmt.Sprintf("machine %s: its worker %s is unreachable", id, m.Worker), failoverDelay, true
		}
	case HostRemoved:
		if s.Wanted[id] {
			return fmt.Sprintf("machine %s: its worker was removed", id), 0, true
		}
	case HostUnknown:
	}
	return "", 0, false
}

// otherStandbys returns the primary machine's other standbys on workers that are members of the
// cluster.
func (s *StandbyInput) otherStandbys(self *bourse.Machine, primary bourse.MachineID) (out []*bourse.Machine) {
	for _, m := range s.Machines {
		if m.ID == self.ID || s.Host(m.ID.Tag()) != HostReachable {
			continue
		}
		if slices.Contains(m.Config.Standbys, primary) {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b *bourse.Machine) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// covered reports whether another standby already covers the primary machine. That is the case if the other standby was
// promoted for the machine and has not failed, even if it has stopped since. It is also the case if a user has started
// the other standby and it is running.
func (s *StandbyInput) covered(self *bourse.Machine, primary bourse.MachineID) bool {
	return slices.ContainsFunc(s.otherStandbys(self, primary), func(m *bourse.Machine) bool {
		if m.Boot.PromotedFor == "" {
			return runs(m)
		}
		return m.Boot.PromotedFor == primary && m.State != bourse.StateFailed
	})
}

// before returns how many other standbys would be promoted before self.
func (s *StandbyInput) before(self *bourse.Machine, primary bourse.MachineID) (n int) {
	for _, m := range s.otherStandbys(self, primary) {
		if m.ID < self.ID && m.State == bourse.StateStopped && m.Boot.PromotedFor == "" {
			n++
		}
	}
	return n
}

// Wanted reports whether a machine's state indicates that the machine should be running. A machine that was stopped, or
// whose program has exited, should not be running.
func Wanted(m *bourse.Machine) bool { return runs(m) || m.State == bourse.StateFailed }

// runs reports whether a machine is running or about to run.
func runs(m *bourse.Machine) bool {
	switch m.State {
	case bourse.StateStarting, bourse.StateStarted, bourse.StateRestarting, bourse.StateReplacing:
		return true
	case bourse.StateCreated, bourse.StateSuspending, bourse.StateSuspended, bourse.StateStopping, bourse.StateStopped,
		bourse.StateFailed, bourse.StateDestroying, bourse.StateDestroyed:
	}
	return false
}
