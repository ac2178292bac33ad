package workload

import (
	"slices"

	"github.com/bourse-dev/bourse"
)

// CheckStatuses returns the status of each of a machine's checks, in the order of [Checks]. The status is warning if
// the machine is not running, or if the check has not produced a result since the machine was last started.
func CheckStatuses(m *bourse.Machine) []bourse.CheckStatus {
	var out []bourse.CheckStatus
	for _, c := range Checks(&m.Config) {
		out = append(out, checkStatus(m, c.Name))
	}
	return out
}

func checkStatus(m *bourse.Machine, name string) bourse.CheckStatus {
	unknown := bourse.CheckStatus{Name: name, Status: bourse.CheckWarning, UpdatedAt: m.UpdatedAt}
	switch r := m.Checks; {
	case m.State != bourse.StateStarted:
		unknown.Output = "the machine is " + string(m.State)
	case m.Config.ImageKind() == bourse.PollerImage:
		unknown.Output = "a poller runs the machine: its ports cannot be reached"
	default:
		unknown.Output = "waiting for the first result"
		if r == nil || r.Boot != m.Boot.Number {
			return unknown
		}
		if i := slices.IndexFunc(r.Results, func(s bourse.CheckStatus) bool { return s.Name == name }); i >= 0 {
			return r.Results[i]
		}
	}
	return unknown
}

// Ready reports whether all of a running machine's readiness checks currently pass. A machine without readiness
// checks is ready. DNS lookups for an app's machines return only ready ones.
func Ready(m *bourse.Machine) bool {
	if len(m.Config.Checks) == 0 {
		return true
	}
	for _, c := range Checks(&m.Config) {
		if c.Kind == Readiness && checkStatus(m, c.Name).Status != bourse.CheckPassing {
			return false
		}
	}
	return true
}
