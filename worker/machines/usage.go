package machines

import (
	"context"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/worker/state"
)

// sampleInterval is how long Usage waits before it takes a second sample, if no earlier sample is suitable for a
// comparison.
const sampleInterval = 250 * time.Millisecond

// Usage returns a machine's current resource usage and its limits.
func (ms *Machines) Usage(ctx context.Context, id bourse.MachineID) (fabric.Usage, error) {
	m, err := ms.state.Machine(ctx, id)
	if err == nil {
		err = stateAllows(&m, bourse.CallUsage)
	}
	if err != nil {
		return fabric.Usage{}, err
	}
	used, now, err := ms.sample(ctx, &m)
	if err != nil {
		return fabric.Usage{}, err
	}
	before, ok := ms.usages.Add(TaskOf(&m), now)
	if !ok && now.CPU >= 0 {
		state.Sleep(ctx, sampleInterval)
		before = now
		if used, now, err = ms.sample(ctx, &m); err != nil {
			return fabric.Usage{}, err
		}
	}
	out := fabric.Usage{
		At: now.At, CPU: used.CPU, Throttled: used.Throttled, Memory: used.Memory, PIDs: used.PIDs,
		ReadByte: used.ReadByte, WriteByte: used.WriteByte, CPUs: cpusUsed(before, now),
	}
	labels, limits := ms.host.Labels.Load().ByKind[m.Config.ImageKind()], ms.policy.Limits(&m)
	if _, ok := labels["limit.cpu"]; ok {
		out.MayCPUs = float64(limits.CPUQuota) / 1000
	}
	if _, ok := labels["limit.memory"]; ok {
		out.MayMemory = int64(limits.Memory) << 20
	}
	return out, nil
}

// sample measures a machine's current resource usage.
func (ms *Machines) sample(ctx context.Context, m *bourse.Machine) (driver.Usage, cpuSample, error) {
	d, err := ms.drivers.of(m.Config.ImageKind())
	if err != nil {
		return driver.Usage{}, cpuSample{}, err
	}
	used, err := d.Usage(ctx, TaskOf(m))
	return used, cpuSample{At: time.Now().UTC(), CPU: used.CPU}, err
}

const (
	minSampleAge = time.Second      // minimum age of a sample for a comparison
	maxAge       = 30 * time.Second // maximum age, because older samples say little about the current usage
)

// cpuSamples keeps samples of the CPU time that tasks have used, from which their current CPU usage is computed. Each
// request for usage adds a sample and compares it with an earlier one.
type cpuSamples struct {
	mu     sync.Mutex
	tasks  map[driver.TaskID][2]cpuSample // guarded by mu; two samples per task, the older one first
	pruned time.Time                      // guarded by mu
}

// cpuSample is the total CPU time that a task had used at a point in time.
type cpuSample struct {
	At  time.Time
	CPU time.Duration
}

// Add adds a sample. It returns the newest earlier sample that is old enough, but not too old, for a comparison.
func (u *cpuSamples) Add(id driver.TaskID, now cpuSample) (before cpuSample, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.tasks == nil {
		u.tasks = map[driver.TaskID][2]cpuSample{}
	}
	kept := u.tasks[id]
	for _, s := range kept {
		if age := now.At.Sub(s.At); !s.At.IsZero() && age >= minSampleAge && age <= maxAge {
			before, ok = s, true
		}
	}
	if now.At.Sub(kept[1].At) >= minSampleAge {
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

// cpusUsed returns the average number of cores in use between two samples.
func cpusUsed(before, now cpuSample) float64 {
	if now.CPU < 0 || before.CPU < 0 || !now.At.After(before.At) {
		return 0
	}
	return max(0, float64(now.CPU-before.CPU)/float64(now.At.Sub(before.At)))
}
