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
	Started  time.Time          // when it was started or resumed last; zero: long ago
	Uses     Uses
	Others   []bourse.Machine // of its app, as they were published last, whose workers are heard from
	Blind    bool             // Others are not known now
}

// IdleAct is an action on a machine that nobody uses.
type IdleAct string

// The acts.
const (
	KeepRunning IdleAct = ""
	Stop        IdleAct = "stop"
	Suspend     IdleAct = "suspend"
)

// IdleVerdict is the decision about a machine, and when to decide again.
type IdleVerdict struct {
	Act  IdleAct
	Why  string    // it is stopped, or not
	Look time.Time // when to decide again; zero: when its record changes, or what is in progress ends

	Others bool // it depends on which other machines run
}

// primaryRegion is in the environment of machines that flyctl deploys.
const primaryRegion = "PRIMARY_REGION"

// leastLook is the least time after which what others do is looked at again.
const leastLook = 5 * time.Second

// DecideIdle returns what is to be done with a machine that is not used for longer than
// after. It is a pure function of its arguments.
//
// Of the machines that must go on running for their app those with the least ids
// do: two workers that see the same never both stop the last one.
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

// needed returns why the app needs the machine although nobody uses it now: fewer
// than its services say would go on with the least ids; "" when it does not.
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

// running counts the machines with lesser ids that serve the same in the region.
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

// round makes a time one that people read.
func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Truncate(time.Second)
}
