package fsm

import "time"

// dueOf returns when a run may execute, by a clock that no one sets: a run
// waits for the delay that it started with, and not for the time of day at which
// that would have been over. Records have only the latter, so what is left of the
// delay when one is read is at most all of it.
func dueOf(rec Record, now time.Time) time.Time {
	if rec.NotBefore.IsZero() {
		return time.Time{}
	}
	return now.Add(min(rec.NotBefore.Sub(now), rec.NotBefore.Sub(rec.UpdatedAt)))
}
