package drivertest

import (
	"cmp"
	"context"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

// memory is the simulated memory usage of each running program, in bytes.
const memory = 1 << 20

// Usage implements driver.Driver. A running task uses one processor (less if its CPUQuota is
// lower), and 1 MiB of memory for each of its programs.
func (d *MemoryDriver) Usage(ctx context.Context, id driver.TaskID) (driver.Usage, error) {
	var usage driver.Usage
	err := d.locked(ctx, Call{Op: "Usage", ID: id}, func() error {
		t := d.host.taskLocked(id)
		if t == nil {
			return errNoTask(id)
		}
		if t.status.Exit != nil {
			return errEnded(id)
		}
		programs := int64(1 + len(t.execs))
		ceiling := cmp.Or(min(t.task.Limits.CPUQuota, 1000), 1000)
		usage = driver.Usage{
			CPU: time.Since(t.status.StartedAt) * time.Duration(ceiling) / 1000, Memory: programs * memory, PIDs: programs, ReadByte: -1, WriteByte: -1,
		}
		return nil
	})
	return usage, err
}
