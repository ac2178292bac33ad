package fsm

import "time"

// dueOf returns the earliest time at which a run may execute, or the zero time if it may execute at
// once. The result has a monotonic clock reading, so the run's delay does not change if the wall
// clock is set. Records contain only wall-clock times: if the wall clock has been set back since a
// record was written, the remaining delay would be too long. dueOf therefore limits it to the run's
// original delay.
func dueOf(rec Record, now time.Time) time.Time {
	if rec.NotBefore.IsZero() {
		return time.Time{}
	}
	return now.Add(min(rec.NotBefore.Sub(now), rec.NotBefore.Sub(rec.UpdatedAt)))
}
