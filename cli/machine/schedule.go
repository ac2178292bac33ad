package machine

import (
	"time"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// nextStart returns the time of a machine's next scheduled start. It returns false if the
// machine has no schedule or was never started.
func nextStart(s *cli.Shell, m *machinesapi.Machine) (time.Time, bool) {
	if m.Config == nil || m.Starts == 0 {
		return time.Time{}, false
	}
	created, err := time.Parse(time.RFC3339, m.CreatedAt)
	if err != nil || m.Config.Schedule == "" {
		return time.Time{}, false
	}
	return m.Config.Schedule.Next(created, m.ID, s.Now()), true
}

func nextText(s *cli.Shell, m *machinesapi.Machine) string {
	at, ok := nextStart(s, m)
	if !ok {
		return "-"
	}
	return "in " + cli.Age(at.Sub(s.Now()))
}

// scheduleText describes a machine's schedule. It returns "" if the machine has none.
func scheduleText(s *cli.Shell, m *machinesapi.Machine) string {
	if m.Config == nil || m.Config.Schedule == "" {
		return ""
	}
	every := m.Config.Schedule
	at, ok := nextStart(s, m)
	if !ok {
		return string(every) + ", after its first start"
	}
	return string(every) + ", next " + at.Local().Format(time.RFC3339) + ", in " + cli.Age(at.Sub(s.Now())) + ", if it is not running then"
}
