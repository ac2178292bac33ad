package tasks

import (
	"strings"
	"sync"

	"github.com/bourse-dev/bourse"
)

// maxTallyError is the maximum length of a stored error in bytes. It is limited because
// errors come from programs.
const maxTallyError = 256

// tally counts the tasks of each warm machine since the daemon's start.
type tally struct {
	mu sync.Mutex
	of map[bourse.MachineID]bourse.TaskCounts // guarded by mu
}

// add counts a task that has ended.
func (y *tally) add(r *bourse.TaskResult) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.of == nil {
		y.of = map[bourse.MachineID]bourse.TaskCounts{}
	}
	c := y.of[r.Machine]
	if c.Total++; r.End != bourse.TaskAnswered {
		c.Failed++
		c.FailedAt, c.Error = r.StartedAt.Add(r.Took), strings.ToValidUTF8(r.Error[:min(len(r.Error), maxTallyError)], "")
		if c.Error == "" {
			c.Error = string(r.End)
		}
	}
	y.of[r.Machine] = c
}

// forget removes a machine's counts.
func (y *tally) forget(id bourse.MachineID) {
	y.mu.Lock()
	defer y.mu.Unlock()
	delete(y.of, id)
}

// Tally returns the counts of a warm machine's tasks since the daemon started, or nil if
// the machine had no tasks.
func (t *Tasks) Tally(id bourse.MachineID) *bourse.TaskCounts {
	t.tally.mu.Lock()
	defer t.tally.mu.Unlock()
	if c, ok := t.tally.of[id]; ok {
		return &c
	}
	return nil
}
