package container

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

// Usage implements driver.Driver.
func (d *Driver) Usage(ctx context.Context, id driver.TaskID) (driver.Usage, error) {
	t, err := d.find(ctx, id)
	if err != nil {
		return driver.Usage{}, err
	}
	if d.statusOf(t).Exit != nil {
		return driver.Usage{}, errEnded(id)
	}
	return d.groups.usage(cgroupPath(d.layout.mark(), t.container)), nil
}

// usage reads what a cgroup's processes use.
func (g *cgroups) usage(path string) driver.Usage {
	g.find()
	file := func(controller, name string) string { return read(g.dir(controller, path), name) }
	if g.v2 != "" {
		return usageV2(func(name string) string { return file("", name) })
	}
	return usageV1(file)
}

// usageV1 reads the files of v1; see Documentation/admin-guide/cgroup-v1.
func usageV1(file func(controller, name string) string) driver.Usage {
	u := driver.Usage{
		CPU:       time.Duration(number(file("cpuacct", "cpuacct.usage"))),
		Memory:    number(file("memory", "memory.usage_in_bytes")),
		PIDs:      number(file("pids", "pids.current")),
		ReadByte:  -1,
		WriteByte: -1,
		Throttled: time.Duration(counter(file("cpu", "cpu.stat"), "throttled_time")),
	}
	if u.Memory >= 0 {
		u.Memory = max(0, u.Memory-counter(file("memory", "memory.stat"), "total_inactive_file"))
	}
	if text := file("blkio", "blkio.throttle.io_service_bytes_recursive"); text != "" {
		u.ReadByte, u.WriteByte = 0, 0
		for line := range strings.Lines(text) { // "8:0 Read 4096"
			f := strings.Fields(line)
			if len(f) != 3 {
				continue
			}
			n, _ := strconv.ParseInt(f[2], 10, 64)
			switch f[1] {
			case "Read":
				u.ReadByte += n
			case "Write":
				u.WriteByte += n
			}
		}
	}
	return u
}

// usageV2 reads the files of v2; see Documentation/admin-guide/cgroup-v2.
func usageV2(file func(name string) string) driver.Usage {
	cpu := file("cpu.stat")
	u := driver.Usage{
		CPU:       -1,
		Memory:    number(file("memory.current")),
		PIDs:      number(file("pids.current")),
		ReadByte:  -1,
		WriteByte: -1,
		Throttled: time.Duration(counter(cpu, "throttled_usec")) * time.Microsecond,
	}
	if cpu != "" {
		u.CPU = time.Duration(counter(cpu, "usage_usec")) * time.Microsecond
	}
	if u.Memory >= 0 {
		u.Memory = max(0, u.Memory-counter(file("memory.stat"), "inactive_file"))
	}
	if text := file("io.stat"); text != "" {
		u.ReadByte, u.WriteByte = 0, 0
		for field := range strings.FieldsSeq(text) { // "8:0 rbytes=4096 wbytes=0 …"
			if value, ok := strings.CutPrefix(field, "rbytes="); ok {
				u.ReadByte += max(0, number(value))
			} else if value, ok := strings.CutPrefix(field, "wbytes="); ok {
				u.WriteByte += max(0, number(value))
			}
		}
	}
	return u
}

// number reads a file that has one number, -1 when it does not.
func number(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return -1
	}
	return n
}
