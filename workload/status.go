package workload

import (
	"slices"

	"github.com/bourse-dev/bourse"
)

// CheckStatuses returns the status of each check of a machine, in the order of
// [ChecksOf]: of one that has no result of the machine's present start a warning. It is
// empty for a machine without checks.
func CheckStatuses(m *bourse.Machine) []bourse.CheckStatus {
	checks, err := ChecksOf(&m.Config)
	if err != nil || len(checks) == 0 {
		return nil // of a release that did not read them
	}
	out := make([]bourse.CheckStatus, len(checks))
	for i := range checks {
		out[i] = checkStatus(m, checks[i].Name)
	}
	return out
}

func checkStatus(m *bourse.Machine, name string) bourse.CheckStatus {
	unknown := bourse.CheckStatus{Name: name, Status: bourse.CheckWarning, UpdatedAt: m.UpdatedAt}
	switch r := m.Checks; {
	case m.State != bourse.StateStarted:
		unknown.Output = "the machine is " + string(m.State)
	case m.Config.ImageKind() == bourse.PollerImage:
		unknown.Output = "the machine runs where its poller is: there is no way to its ports"
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
