package watch

import (
	"fmt"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// IdleInput contains the information that decideIdle uses.
type IdleInput struct {
	Machine  *bourse.Machine
	Services []workload.Service // the services in the machine's config
	Started  time.Time          // time of the last start or resume; zero if it was long ago
	Uses     Uses
	Others   []bourse.Machine // the app's machines on all workers in the cluster; for other workers, as last published
	Unknown  bool             // set if the app's other machines are not known at the moment
}

// IdleAct is an action on a machine that nobody uses.
type IdleAct string

// The actions.
const (
	KeepRunning IdleAct = ""
	Stop        IdleAct = "stop"
	Suspend     IdleAct = "suspend"
)

// IdleDecision is a decision about a machine, including when to decide again.
type IdleDecision struct {
	Act  IdleAct
	Why  string    // why the machine is stopped or kept running
	Look time.Time // when to decide again; if zero, after the next change to the machine's record or when a use ends

	Others bool // whether the decision depends on which of the app's other machines are running
}

// primaryRegion is the name of an environment variable that flyctl sets for the machines that it deploys.
const primaryRegion = "PRIMARY_REGION"

// minDecisionInterval is the minimum time between decisions that depend on other machines.
const minDecisionInterval = 5 * time.Second

// decideIdle decides whether to stop or suspend a machine. A machine is stopped once it has been unused for the
// duration idleAfter, unless its app needs it. decideIdle is a pure function of its arguments.
//
// If an app needs a minimum number of running machines, it keeps those with the lowest ids. Two workers with the same
// information therefore never both stop the last machine.
func decideIdle(s *IdleInput, now time.Time, idleAfter time.Duration) IdleDecision {
	m := s.Machine
	stop := workload.AutostopOf(s.Services)
	idle := later(s.Uses.Last, s.Started)
	switch {
	case stop == workload.AutostopOff:
		return IdleDecision{Why: "autostop is off"}
	case m.State != bourse.StateStarted:
		return IdleDecision{Why: "it is " + string(m.State)}
	case m.Config.Task != nil:
		return IdleDecision{Why: "it is warm for a task"}
	case m.Next != nil:
		return IdleDecision{Why: "it is being updated"}
	case s.Uses.Busy:
		return IdleDecision{Why: "it is in use"}
	}
	if !m.Lease.Expired(now) {
		return IdleDecision{Why: "it is leased", Look: m.Lease.ExpiresAt}
	}
	if at := later(idle.Add(idleAfter), s.Uses.Until); now.Before(at) {
		return IdleDecision{Why: "it is in use", Look: at}
	}
	if why := s.needed(); why != "" {
		return IdleDecision{Why: why, Look: now.Add(max(minDecisionInterval, idleAfter)), Others: true}
	}
	v := IdleDecision{Act: Stop, Why: "idle for " + round(now.Sub(idle)).String()}
	if stop == workload.AutostopSuspend {
		v.Act = Suspend
	}
	return v
}

// needed returns the reason why the app needs the machine although nobody uses it, or "" if the app does not need it.
// The app needs the machine if too few of its machines with lower ids are running in the same region, or if their
// states are unknown. An app with a primary region needs machines only there.
func (s *IdleInput) needed() string {
	region := s.Machine.Region
	if primary := s.Machine.Config.Env[primaryRegion]; primary != "" && primary != string(region) {
		return ""
	}
	for i := range s.Services {
		want := &s.Services[i]
		if want.MinRunning == 0 {
			continue
		}
		if s.Unknown {
			return "the state of the app's other machines is unknown"
		}
		if n := s.running(want); n < want.MinRunning {
			return fmt.Sprintf("the app must keep %d running in %s", want.MinRunning, region)
		}
	}
	return ""
}

// running counts the app's running machines in the same region that have a lower id, provide the service, and are not
// cordoned.
func (s *IdleInput) running(want *workload.Service) (n int) {
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

// round rounds a duration for display.
func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Truncate(time.Second)
}
