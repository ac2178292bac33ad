package process

import (
	"context"

	"github.com/bourse-dev/bourse/driver"
)

// Usage implements driver.Driver. If the task's cgroups do not provide a value, Usage returns the
// sum for the task's running processes. Processor time of exited processes is included only if
// their parents have waited for them.
func (d *Driver) Usage(ctx context.Context, id driver.TaskID) (driver.Usage, error) {
	if status, _, ok := d.mirror.get(id); ok && status.Exit != nil {
		return driver.Usage{}, errEnded(id)
	}
	var u driver.Usage
	err := d.call(ctx, &request{Op: opUsage, Task: id}, func(r *reply) {
		if r.Usage != nil {
			u = *r.Usage
		}
	})
	if err != nil {
		return driver.Usage{}, err
	}
	return u, nil
}

// usage is the supervisor's part of Driver.Usage.
func (s *supervisor) usage(id driver.TaskID) (*driver.Usage, error) {
	t, err := s.find(id)
	if err != nil {
		return nil, err
	}
	with := s.join(t)
	if with == nil {
		return nil, errEnded(id)
	}
	defer with.forks.Done()
	u := driver.Usage{CPU: -1, Memory: -1, PIDs: -1, ReadByte: -1, WriteByte: -1, Throttled: -1}
	members := func() []int { return processTree(t.pid) }
	if with.group != nil {
		u = with.group.Usage()
		members = with.group.Members
	}
	if u.CPU < 0 || u.Memory < 0 || u.PIDs < 0 {
		u = fillMissing(u, account(members()))
	}
	return &u, nil
}

// fillMissing returns u, with negative values replaced by the values in fallback.
func fillMissing(u, fallback driver.Usage) driver.Usage {
	if u.CPU < 0 {
		u.CPU = fallback.CPU
	}
	if u.Memory < 0 {
		u.Memory = fallback.Memory
	}
	if u.PIDs < 0 {
		u.PIDs = fallback.PIDs
	}
	return u
}
