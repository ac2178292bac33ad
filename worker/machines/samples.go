package machines

import (
	"sync"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

const (
	fresh  = time.Second      // a younger sample says too little about the time between
	maxAge = 30 * time.Second // an older one too much
)

// cpuSamples are those of what tasks have used of processors, to tell what
// they use now. Nothing is sampled for its own sake: a worker that is not asked
// does nothing, and one that is asked all the time compares with the answers
// before.
type cpuSamples struct {
	mu     sync.Mutex
	tasks  map[driver.TaskID][2]cpuSample // guarded by mu; the older one first
	pruned time.Time                      // guarded by mu
}

// cpuSample is what a task had used of processors at some time.
type cpuSample struct {
	At  time.Time
	CPU time.Duration
}

// Add notes a sample and returns the one to compare it with: the newest that is
// neither too young nor too old.
func (u *cpuSamples) Add(id driver.TaskID, now cpuSample) (before cpuSample, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.tasks == nil {
		u.tasks = map[driver.TaskID][2]cpuSample{}
	}
	kept := u.tasks[id]
	for _, s := range kept {
		if age := now.At.Sub(s.At); !s.At.IsZero() && age >= fresh && age <= maxAge {
			before, ok = s, true
		}
	}
	if now.At.Sub(kept[1].At) >= fresh {
		u.tasks[id] = [2]cpuSample{kept[1], now}
	}
	if now.At.Sub(u.pruned) > maxAge {
		u.pruned = now.At
		for id, s := range u.tasks {
			if now.At.Sub(s[1].At) > maxAge {
				delete(u.tasks, id)
			}
		}
	}
	return before, ok
}

// cpusUsed returns the cores in use between two samples.
func cpusUsed(before, now cpuSample) float64 {
	if now.CPU < 0 || before.CPU < 0 || !now.At.After(before.At) {
		return 0
	}
	return max(0, float64(now.CPU-before.CPU)/float64(now.At.Sub(before.At)))
}
