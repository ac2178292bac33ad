package worker

import (
	"context"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fabric"
)

const (
	usageGap    = 250 * time.Millisecond // between two samples when there is no earlier one
	usageFresh  = time.Second            // a younger sample says too little about the time between
	usageMaxAge = 30 * time.Second       // an older one too much
)

// usages are the samples of what tasks have used of processors, to tell what
// they use now. Nothing is sampled for its own sake: a worker that nobody asks
// does nothing, and one that is asked all the time compares with the answers
// before.
type usages struct {
	mu     sync.Mutex
	tasks  map[driver.TaskID][2]sample // guarded by mu; the older one first
	pruned time.Time                   // guarded by mu
}

type sample struct {
	at  time.Time
	cpu time.Duration
}

// add notes a sample and gives the one to compare it with: the newest that is
// neither too young nor too old.
func (u *usages) add(id driver.TaskID, now sample) (before sample, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.tasks == nil {
		u.tasks = map[driver.TaskID][2]sample{}
	}
	kept := u.tasks[id]
	for _, s := range kept {
		if age := now.at.Sub(s.at); !s.at.IsZero() && age >= usageFresh && age <= usageMaxAge {
			before, ok = s, true
		}
	}
	if now.at.Sub(kept[1].at) >= usageFresh {
		u.tasks[id] = [2]sample{kept[1], now}
	}
	if now.at.Sub(u.pruned) > usageMaxAge {
		u.pruned = now.at
		for id, s := range u.tasks {
			if now.at.Sub(s[1].at) > usageMaxAge {
				delete(u.tasks, id)
			}
		}
	}
	return before, ok
}

// cpus gives the cores in use between two samples.
func cpus(before, now sample) float64 {
	if now.cpu < 0 || before.cpu < 0 || !now.at.After(before.at) {
		return 0
	}
	return max(0, float64(now.cpu-before.cpu)/float64(now.at.Sub(before.at)))
}

// usage tells what a machine uses, and what it may.
func (w *Worker) usage(ctx context.Context, id bourse.MachineID) (fabric.Usage, error) {
	m, err := w.running(ctx, id)
	if err != nil {
		return fabric.Usage{}, err
	}
	used, now, err := w.sample(ctx, &m)
	if err != nil {
		return fabric.Usage{}, err
	}
	before, ok := w.usages.add(taskOf(&m), now)
	if !ok && now.cpu >= 0 {
		w.rest(ctx, usageGap)
		before = now
		if used, now, err = w.sample(ctx, &m); err != nil {
			return fabric.Usage{}, err
		}
	}
	out := fabric.Usage{
		At: now.at, CPU: used.CPU, Throttled: used.Throttled, Memory: used.Memory, PIDs: used.PIDs,
		ReadByte: used.ReadByte, WriteByte: used.WriteByte, CPUs: cpus(before, now),
	}
	labels, limits := w.labels.Load().of(m.Config.Image), w.limits(&m)
	if _, ok := labels["limit.cpu"]; ok {
		out.MayCPUs = float64(limits.CPUQuota) / 1000
	}
	if _, ok := labels["limit.memory"]; ok {
		out.MayMemory = int64(limits.Memory) << 20
	}
	return out, nil
}

// sample asks what a machine uses now.
func (w *Worker) sample(ctx context.Context, m *bourse.Machine) (driver.Usage, sample, error) {
	d, err := w.driverOf(m.Config.Image)
	if err != nil {
		return driver.Usage{}, sample{}, err
	}
	used, err := d.Usage(ctx, taskOf(m))
	return used, sample{at: time.Now().UTC(), cpu: used.CPU}, err
}
