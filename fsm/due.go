package fsm

import "time"

// dueOf returns the time on the monotonic clock at which a run may execute. The run waits for
// the delay with which it was started, even if the wall clock is changed. Records contain only
// wall-clock times, so the remaining delay of a record that was read from the journal is
// limited to the delay with which the run was started.
func dueOf(rec Record, now time.Time) time.Time {
	if rec.NotBefore.IsZero() {
		return time.Time{}
	}
	return now.Add(min(rec.NotBefore.Sub(now), rec.NotBefore.Sub(rec.UpdatedAt)))
}
