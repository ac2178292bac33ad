package run

import (
	"context"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Bounds of evidence.
const (
	maxLines       = 20
	evidenceWithin = 5 * time.Second
)

func lastLines(lines []machinesapi.LogLine) []machinesapi.LogLine {
	return lines[max(0, len(lines)-maxLines):]
}

// evidence reads what is known of the machine of a step that failed, for the result, too; nil when
// the step has none.
func (r *runner) evidence(i int) *Evidence {
	id := r.machineOf(i)
	if id == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.hard, evidenceWithin)
	defer cancel()
	out := &Evidence{Machine: id}
	r.mu.Lock()
	out.Lines = slices.Clone(r.lines[i]) // of a command, which is gone
	r.mu.Unlock()
	if m, err := r.api.Machine(ctx, id); err == nil { // what is not to be had is not shown
		out.State, out.Events, out.Checks = m.State, m.Events, m.Checks
	}
	if len(out.Lines) == 0 {
		_ = r.api.Logs(ctx, id, machinesapi.LogQuery{Tail: maxLines}, func(line machinesapi.LogLine) error {
			out.Lines = lastLines(append(out.Lines, line))
			return nil
		})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = append(r.failed, *out)
	return out
}

// why returns the text of a state's error.
func why(err error) string {
	if err == nil {
		return ""
	}
	return bourse.MessageOf(err)
}
