package run

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Limits of evidence.
const (
	maxLines       = 20
	evidenceWithin = 5 * time.Second
)

// Evidence is what is known about a machine that failed.
type Evidence struct {
	Machine bourse.MachineID      `json:"machine"`
	State   bourse.State          `json:"state,omitempty"`
	Lines   []machinesapi.LogLine `json:"lines,omitempty"`  // its last output, oldest first
	Events  []machinesapi.Event   `json:"events,omitempty"` // newest first
	Checks  []bourse.CheckStatus  `json:"checks,omitempty"`
}

func lastLines(lines []machinesapi.LogLine) []machinesapi.LogLine {
	return lines[max(0, len(lines)-maxLines):]
}

// evidence reads and records what is known about the machine of a failed step. It returns nil if the step has no machine.
func (x *executor) evidence(i int) *Evidence {
	id := x.journal.machine(i)
	if id == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(x.hard, evidenceWithin)
	defer cancel()
	out := &Evidence{Machine: id, Lines: x.journal.output(i)} // of a command whose machine is gone
	if m, err := x.api.Machine(ctx, id); err == nil {         // whatever cannot be read is left out
		out.State, out.Events, out.Checks = m.State, m.Events, m.Checks
	}
	if len(out.Lines) == 0 {
		_ = x.api.Logs(ctx, id, machinesapi.LogQuery{Tail: maxLines}, func(line machinesapi.LogLine) error {
			out.Lines = lastLines(append(out.Lines, line))
			return nil
		})
	}
	x.journal.failedWith(*out)
	return out
}
