package watch

import (
	"fmt"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// IdleSight holds the facts from which DecideIdle decides about one machine.
type IdleSight struct {
	Machine  *bourse.Machine
	Services []workload.Service // of its config
	Started  time.Time          // last start or resume; zero if that was long ago
	Uses     Uses
	Others   []bourse.Machine // the app's other machines as last published, on workers that are members
	Blind    bool             // the app's other machines are not known now
}

// IdleAct is an action on a machine that nobody uses.
type IdleAct string

// The actions.
const (
	KeepRunning IdleAct = ""
	Stop        IdleAct = "stop"
	Suspend     IdleAct = "suspend"
)

// IdleVerdict is the decision about a machine, and when to decide again.
type IdleVerdict struct {
	Act  IdleAct
	Why  string    // the reason to stop it, or not
	Look time.Time // when to decide again; zero if only after a change of its record, or the end of a use

	Others bool // the decision depends on which other machines run
}

// primaryRegion is an environment variable of machines that flyctl deploys.
const primaryRegion = "PRIMARY_REGION"

// leastLook is the minimum time between decisions that depend on other machines.
const leastLook = 5 * time.Second

// DecideIdle decides about a machine that may have been unused for longer than after. It is
// a pure function of its arguments.
//
// If some machines of an app must keep running, those with the lowest ids do. Two workers
// with the same information therefore never both stop the last machine.
func DecideIdle(s *IdleSight, now time.Time, after time.Duration) IdleVerdict {
	m := s.Machine
	stop := workload.AutostopOf(s.Services)
	idle := later(s.Uses.Last, s.Started)
	switch {
	case stop == workload.AutostopOff:
		return IdleVerdict{Why: "its config does not ask for it"}
	case m.State != bourse.StateStarted:
		return IdleVerdict{Why: "it is " + string(m.State)}
	case m.Config.Task != nil:
		return IdleVerdict{Why: "it is warm for a task"}
	case m.Next != nil:
		return IdleVerdict{Why: "it is being updated"}
	case s.Uses.Busy:
		return IdleVerdict{Why: "it is in use"}
	}
	if !m.Lease.Expired(now) {
		return IdleVerdict{Why: "it is leased", Look: m.Lease.ExpiresAt}
	}
	if at := later(idle.Add(after), s.Uses.Until); now.Before(at) {
		return IdleVerdict{Why: "it is in use", Look: at}
	}
	if why := s.needed(); why != "" {
		return IdleVerdict{Why: why, Look: now.Add(max(leastLook, after)), Others: true}
	}
	v := IdleVerdict{Act: Stop, Why: "idle for " + round(now.Sub(idle)).String()}
	if stop == workload.AutostopSuspend {
		v.Act = Suspend
	}
	return v
}

// needed returns why the app needs the machine although nobody uses it: too few machines
// with lower ids run. It returns "" if the app does not need the machine.
func (s *IdleSight) needed() string {
	region := s.Machine.Region
	if primary := s.Machine.Config.Env[primaryRegion]; primary != "" && primary != string(region) {
		return ""
	}
	for i := range s.Services {
		want := &s.Services[i]
		if want.MinRunning == 0 {
			continue
		}
		if s.Blind {
			return "which other machines run is not known now"
		}
		if n := s.running(want); n < want.MinRunning {
			return fmt.Sprintf("its app is to have %d running in %s", want.MinRunning, region)
		}
	}
	return ""
}

// running returns the number of machines in the region that have lower ids and provide the
// service.
func (s *IdleSight) running(want *workload.Service) (n int) {
	for i := range s.Others {
		m := &s.Others[i]
		if m.ID < s.Machine.ID && m.State == bourse.StateStarted && m.Region == s.Machine.Region && !m.Cordoned && serves(m, want) {
			n++
		}
	}
	return n
}

func serves(m *bourse.Machine, want *workload.Service) bool {
	return slices.ContainsFunc(workload.Services(&m.Config), func(s workload.Service) bool {
		return s.InternalPort == want.InternalPort && s.Protocol == want.Protocol
	})
}

// round rounds a duration for people.
func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Truncate(time.Second)
}
