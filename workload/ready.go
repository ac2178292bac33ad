package workload

import "github.com/bourse-dev/bourse"

// Ready reports whether a machine that runs may be given to those who ask for any
// machine of an app by name: all its readiness checks have passed, as far as their latest
// results since its start say. A machine that asks for none is ready, and so is one whose
// checks a former release let through and no one does.
func Ready(m *bourse.Machine) bool {
	if len(m.Config.Checks) == 0 {
		return true
	}
	checks, err := ChecksOf(&m.Config)
	if err != nil {
		return true
	}
	for i := range checks {
		if c := &checks[i]; c.Kind == Readiness && checkStatus(m, c.Name).Status != bourse.CheckPassing {
			return false
		}
	}
	return true
}
