package fsm

import "time"

// dueOf returns the time on the monotonic clock from which a run may execute. The run's delay does
// not change if the wall clock is set. Records contain only wall-clock times, so if the wall clock
// has been set back since a record was written, the remaining delay would be too long. dueOf
// therefore limits it to the run's original delay.
func dueOf(rec Record, now time.Time) time.Time {
	if rec.NotBefore.IsZero() {
		return time.Time{}
	}
	return now.Add(min(rec.NotBefore.Sub(now), rec.NotBefore.Sub(rec.UpdatedAt)))
}
