package worker

import (
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
)

// startBounds are the upper bounds of the start latency's histogram.
var startBounds = [...]time.Duration{
	5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 10 * time.Second,
}

// counts is what the worker has done since it started, for metrics. Counting
// costs some atomic additions; what is made of it is made when asked for.
type counts struct {
	starts    [len(startBounds) + 1]atomic.Uint64 // by latency, the last for all above
	startTime atomic.Int64                        // nanoseconds of all starts together
	pulls     atomic.Uint64
	pullBytes atomic.Int64
	pullTime  atomic.Int64     // nanoseconds
	tasks     [6]atomic.Uint64 // by their end, as in taskEnds
}

// taskEnds are the ends that are counted.
var taskEnds = [...]bourse.TaskEnd{
	bourse.TaskAnswered, bourse.TaskFailed, bourse.TaskBroken, bourse.TaskTimeout, bourse.TaskCanceled, bourse.TaskLost,
}

func (c *counts) task(end bourse.TaskEnd) {
	for i, e := range taskEnds {
		if e == end {
			c.tasks[i].Add(1)
		}
	}
}

func (c *counts) started(took time.Duration) {
	i := 0
	for i < len(startBounds) && took > startBounds[i] {
		i++
	}
	c.starts[i].Add(1)
	c.startTime.Add(int64(took))
}

func (c *counts) pulled(bytes int64, took time.Duration) {
	c.pulls.Add(1)
	c.pullBytes.Add(bytes)
	c.pullTime.Add(int64(took))
}

// latencies gives how many starts there were, and of them how many took no
// longer than each bound, in seconds.
func (c *counts) latencies() (count uint64, within map[float64]uint64) {
	within = make(map[float64]uint64, len(startBounds))
	for i := range c.starts {
		count += c.starts[i].Load()
		if i < len(startBounds) {
			within[startBounds[i].Seconds()] = count
		}
	}
	return count, within
}
