package machines

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fabric"

	"github.com/bourse-dev/bourse/worker/state"
)

// usageGap is the time between two samples when there is no earlier one.
const usageGap = 250 * time.Millisecond

// Usage returns what a machine uses, and what it may.
func (ms *Machines) Usage(ctx context.Context, id bourse.MachineID) (fabric.Usage, error) {
	m, err := ms.state.Machine(ctx, id)
	if err == nil {
		err = on(&m, bourse.CallUsage)
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
		state.Rest(ctx, usageGap)
		before = now
		if used, now, err = ms.sample(ctx, &m); err != nil {
			return fabric.Usage{}, err
		}
	}
	out := fabric.Usage{
		At: now.At, CPU: used.CPU, Throttled: used.Throttled, Memory: used.Memory, PIDs: used.PIDs,
		ReadByte: used.ReadByte, WriteByte: used.WriteByte, CPUs: cpusUsed(before, now),
	}
	labels, limits := ms.host.Labels.Load().Of[m.Config.ImageKind()], ms.ops.policy.Limits(&m)
	if _, ok := labels["limit.cpu"]; ok {
		out.MayCPUs = float64(limits.CPUQuota) / 1000
	}
	if _, ok := labels["limit.memory"]; ok {
		out.MayMemory = int64(limits.Memory) << 20
	}
	return out, nil
}

// sample asks what a machine uses now.
func (ms *Machines) sample(ctx context.Context, m *bourse.Machine) (driver.Usage, cpuSample, error) {
	d, err := ms.ops.drivers.of(m.Config.ImageKind())
	if err != nil {
		return driver.Usage{}, cpuSample{}, err
	}
	used, err := d.Usage(ctx, TaskOf(m))
	return used, cpuSample{At: time.Now().UTC(), CPU: used.CPU}, err
}
