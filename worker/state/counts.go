package state

import (
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
)

// startBounds contains the upper bounds of the buckets of the start latency histogram.
var startBounds = [...]time.Duration{
	5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 10 * time.Second,
}

// Counts holds the counters for a worker's metrics, which start at 0 when the daemon starts. Counting takes only a few
// atomic additions. Sums are computed when they are read.
type Counts struct {
	starts    [len(startBounds) + 1]atomic.Uint64 // number of starts per bucket; the last bucket is for starts that exceed all bounds
	startTime atomic.Int64                        // total duration of starts in nanoseconds
	pulls     atomic.Uint64
	pullBytes atomic.Int64
	pullTime  atomic.Int64     // total duration of pulls in nanoseconds
	tasks     [6]atomic.Uint64 // number of tasks per outcome, in the order of taskEnds
	exits     [len(exitEnds)]atomic.Uint64
	restarts  atomic.Uint64
}

// exitEnds lists the names of the exit classes, as used in the metrics.
var exitEnds = [...]string{"stopped", "ok", "failed", "oom_killed", "lost"}

// endOf classifies an exit. It returns the index of its class in exitEnds.
func endOf(exit *bourse.Exit, requested bool) int {
	switch {
	case exit.OOMKilled:
		return 3
	case requested:
		return 0
	case exit.Error != "":
		return 4
	case exit.Failed():
		return 2
	}
	return 1
}

// taskEnds lists the task outcomes that are counted.
var taskEnds = [...]bourse.TaskEnd{
	bourse.TaskAnswered, bourse.TaskFailed, bourse.TaskBroken, bourse.TaskTimeout, bourse.TaskCanceled, bourse.TaskLost,
}

// Started counts the start of a machine.
func (c *Counts) Started(took time.Duration) {
	i := 0
	for i < len(startBounds) && took > startBounds[i] {
		i++
	}
	c.starts[i].Add(1)
	c.startTime.Add(int64(took))
}

// Pulled counts an image pull.
func (c *Counts) Pulled(bytes int64, took time.Duration) {
	c.pulls.Add(1)
	c.pullBytes.Add(bytes)
	c.pullTime.Add(int64(took))
}

// Exited counts the exit of a machine's program. requested is true if a stop was requested, and restarts is true if the
// machine's restart policy restarts the machine.
func (c *Counts) Exited(exit *bourse.Exit, requested, restarts bool) {
	c.exits[endOf(exit, requested)].Add(1)
	if restarts {
		c.restarts.Add(1)
	}
}

// Exits returns the number of exits in each class of exitEnds, and the number of restarts by restart policies.
func (c *Counts) Exits() (ends map[string]uint64, restarts uint64) {
	ends = make(map[string]uint64, len(exitEnds))
	for i, end := range exitEnds {
		ends[end] = c.exits[i].Load()
	}
	return ends, c.restarts.Load()
}

// TaskEnded counts a finished task by its outcome.
func (c *Counts) TaskEnded(end bourse.TaskEnd) {
	for i, e := range taskEnds {
		if e == end {
			c.tasks[i].Add(1)
		}
	}
}

// Starts returns the number of starts and their total duration. within maps each
// histogram bound, in seconds, to the number of starts that took no longer than the
// bound.
func (c *Counts) Starts() (count uint64, took time.Duration, within map[float64]uint64) {
	within = make(map[float64]uint64, len(startBounds))
	for i := range c.starts {
		count += c.starts[i].Load()
		if i < len(startBounds) {
			within[startBounds[i].Seconds()] = count
		}
	}
	return count, time.Duration(c.startTime.Load()), within
}

// Pulls returns the number of pulled images, their total size, and the total duration of the pulls.
func (c *Counts) Pulls() (count uint64, bytes int64, took time.Duration) {
	return c.pulls.Load(), c.pullBytes.Load(), time.Duration(c.pullTime.Load())
}

// Tasks returns the number of finished tasks per outcome.
func (c *Counts) Tasks() map[bourse.TaskEnd]uint64 {
	ends := make(map[bourse.TaskEnd]uint64, len(taskEnds))
	for i, end := range taskEnds {
		ends[end] = c.tasks[i].Load()
	}
	return ends
}
