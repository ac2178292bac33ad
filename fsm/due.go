package fsm

import "time"

// dueOf returns when a run may execute, on the monotonic clock: a run waits for the delay with which it was started,
// even if the wall clock is changed. Records contain only the wall-clock time, so the remaining delay of a record
// that was read is limited to its whole delay.
func dueOf(rec Record, now time.Time) time.Time {
	if rec.NotBefore.IsZero() {
		return time.Time{}
	}
	return now.Add(min(rec.NotBefore.Sub(now), rec.NotBefore.Sub(rec.UpdatedAt)))
}
