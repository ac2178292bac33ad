package bourse

import (
	"hash/fnv"
	"time"
)

// Schedule says how often a stopped machine is started.
type Schedule string

// The schedules of the Machines API.
const (
	Hourly  Schedule = "hourly"
	Daily   Schedule = "daily"
	Weekly  Schedule = "weekly"
	Monthly Schedule = "monthly"
)

// scheduleSpread is the time over which machines that were made at once are
// started.
const scheduleSpread = 5 * time.Minute

// Validate returns CodeInvalid for a schedule that the Machines API doesn't have; ""
// is none.
func (s Schedule) Validate() error {
	switch s {
	case "", Hourly, Daily, Weekly, Monthly:
		return nil
	}
	return Errorf(CodeInvalid, "invalid config.schedule %s: use hourly, daily, weekly or monthly", Quoted(string(s)))
}

// Next returns the first time after another at which a machine is to be started:
// whole periods after it was created, and a while that follows from its id. It is
// zero for no schedule.
func (s Schedule) Next(created time.Time, id MachineID, after time.Time) time.Time {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // never fails
	base := created.UTC().Add(time.Duration(h.Sum64() % uint64(scheduleSpread)))
	switch s {
	case Hourly:
		return periodAfter(base, after, time.Hour)
	case Daily:
		return periodAfter(base, after, 24*time.Hour)
	case Weekly:
		return periodAfter(base, after, 7*24*time.Hour)
	case Monthly:
		year, month, _ := after.UTC().Date()
		for n := max(1, (year-base.Year())*12+int(month-base.Month())); ; n++ {
			if at := monthsAfter(base, n); at.After(after) {
				return at
			}
		}
	}
	return time.Time{}
}

func periodAfter(base, after time.Time, period time.Duration) time.Time {
	n := max(0, after.Sub(base)/period) + 1
	return base.Add(n * period)
}

// monthsAfter returns the same day n months later, or the last of that month.
func monthsAfter(base time.Time, n int) time.Time {
	first := base.AddDate(0, n, 1-base.Day())
	last := first.AddDate(0, 1, -1).Day()
	return first.AddDate(0, 0, min(base.Day(), last)-1)
}

// Due is the next start of a machine's schedule, as its worker has recorded it.
type Due struct {
	Every Schedule  `json:"every"`
	At    time.Time `json:"at"`
}
