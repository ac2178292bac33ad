package tasks

import (
	"strings"
	"sync"

	"github.com/bourse-dev/bourse"
)

// maxCountsError is the maximum length, in bytes, of the errors in counts. Programs choose these
// errors, so their length must be limited.
const maxCountsError = 256

// taskCounts counts each warm machine's tasks since the daemon started.
type taskCounts struct {
	mu        sync.Mutex
	byMachine map[bourse.MachineID]bourse.TaskCounts // guarded by mu
}

// add counts a finished task.
func (y *taskCounts) add(r *bourse.TaskResult) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.byMachine == nil {
		y.byMachine = map[bourse.MachineID]bourse.TaskCounts{}
	}
	c := y.byMachine[r.Machine]
	if c.Total++; r.End != bourse.TaskAnswered {
		c.Failed++
		c.FailedAt, c.Error = r.StartedAt.Add(r.Took), strings.ToValidUTF8(r.Error[:min(len(r.Error), maxCountsError)], "")
		if c.Error == "" {
			c.Error = string(r.End)
		}
	}
	y.byMachine[r.Machine] = c
}

// forget removes a machine's counts.
func (y *taskCounts) forget(id bourse.MachineID) {
	y.mu.Lock()
	defer y.mu.Unlock()
	delete(y.byMachine, id)
}

// Counts returns the task counts of a warm machine since the daemon started, or nil if the machine
// has not had any tasks.
func (t *Tasks) Counts(id bourse.MachineID) *bourse.TaskCounts {
	t.counts.mu.Lock()
	defer t.counts.mu.Unlock()
	if c, ok := t.counts.byMachine[id]; ok {
		return &c
	}
	return nil
}
