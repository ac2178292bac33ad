package bourse

import "time"

// Backoff of restart policies: doubles from restartFirst to restartMost.
const (
	restartFirst = 100 * time.Millisecond
	restartMost  = 30 * time.Second
)

// RestartBackoff is how long a program waits for its n-th restart in a row, n
// from 1.
func RestartBackoff(n int) time.Duration {
	d := restartFirst
	for range n - 1 {
		if d *= 2; d >= restartMost {
			return restartMost
		}
	}
	return d
}

// Validate reports CodeInvalid unless p is a policy, or empty.
func (p RestartPolicy) Validate() error {
	switch p {
	case "", RestartNo, RestartAlways, RestartOnFailure:
		return nil
	}
	return Errorf(CodeInvalid, "invalid restart policy %s: use no, always or on-failure", Quoted(string(p)))
}

// Again reports whether a program is started again after this exit, given when
// it was before; recent are those of them that still count. r has its defaults
// filled in.
func (r Restart) Again(exit Exit, before []time.Time) (again bool, recent []time.Time) {
	for _, at := range before {
		if exit.At.Sub(at) < RestartWindow {
			recent = append(recent, at)
		}
	}
	if len(recent) >= r.MaxRetries {
		return false, recent
	}
	switch r.Policy {
	case RestartAlways:
		return true, recent
	case RestartOnFailure:
		return exit.Failed(), recent
	case RestartNo:
		return false, recent
	}
	return false, recent
}
