package plans

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy/run"
)

// Maximum numbers of output lines and events that are shown for a failed machine.
const (
	shownLines  = 10
	shownEvents = 5
)

// evidence formats what is known about a failed machine: failing checks, latest events,
// and last output.
func evidence(v *run.Evidence) []string {
	var out []string
	for i := range v.Checks {
		if c := &v.Checks[i]; c.Status != bourse.CheckPassing {
			out = append(out, fmt.Sprintf("  check %s is %s: %s", c.Name, c.Status, strings.TrimSpace(c.Output)))
		}
	}
	events := v.Events[:min(len(v.Events), shownEvents)]
	if len(events) > 0 {
		out = append(out, "  its latest events:")
	}
	for _, event := range slices.Backward(events) {
		line := fmt.Sprintf("    %s  %s  %s", time.UnixMilli(event.Timestamp).Local().Format("15:04:05.000"), event.Type, event.Status)
		if event.Request != nil && event.Request.ExitEvent != nil {
			line += fmt.Sprintf("  exit code %d", event.Request.ExitEvent.ExitCode)
		}
		if event.Reason != "" {
			line += "  " + event.Reason
		}
		out = append(out, line)
	}
	lines := v.Lines[max(0, len(v.Lines)-shownLines):]
	if len(lines) > 0 {
		out = append(out, "  its last output:")
	} else {
		out = append(out, "  it has no output")
	}
	for i := range lines {
		out = append(out, "    "+strings.TrimRight(lines[i].Text, "\n"))
	}
	return out
}

// headline names the failed machine and the cause of its failure.
func headline(s *subject, e *run.Event) string {
	return fullName(s, e.Evidence.Machine) + " failed: " + e.Text
}

// fullName returns the name of a machine, followed by its id if the id differs.
func fullName(s *subject, id bourse.MachineID) string {
	name := s.name
	if id != "" && name != string(id) {
		name += " (" + string(id) + ")"
	}
	return cli.Clean(name)
}
