package run

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Limits on the evidence about one machine: the number of output lines, and the time for collecting it.
const (
	maxLines        = 20
	evidenceTimeout = 5 * time.Second
)

// Evidence contains the state, last output, events and checks of the machine of a failed step.
type Evidence struct {
	Machine bourse.MachineID      `json:"machine"`
	State   bourse.State          `json:"state,omitempty"`
	Lines   []machinesapi.LogLine `json:"lines,omitempty"`  // last lines of output, oldest first
	Events  []machinesapi.Event   `json:"events,omitempty"` // events, newest first
	Checks  []bourse.CheckStatus  `json:"checks,omitempty"`
}

func lastLines(lines []machinesapi.LogLine) []machinesapi.LogLine {
	return lines[max(0, len(lines)-maxLines):]
}

// evidence collects and records information about the machine of a failed step. It returns
// nil if the step has no machine.
func (x *executor) evidence(i int) *Evidence {
	id := x.journal.machine(i)
	if id == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(x.abandonCtx, evidenceTimeout)
	defer cancel()
	// Use the recorded output first, because a command's machine may no longer exist.
	out := &Evidence{Machine: id, Lines: x.journal.output(i)}
	if m, err := x.api.Machine(ctx, id); err == nil { // information that cannot be read is omitted
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
