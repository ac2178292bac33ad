package cgroup

import (
	"strconv"
	"strings"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

// usageV1 reads a group's resource usage from v1 files. file must return a file's contents, or "" if the group does not
// have the file or the controller. Values that the host does not measure are negative. See
// Documentation/admin-guide/cgroup-v1.
func usageV1(file func(controller, name string) string) driver.Usage {
	u := driver.Usage{
		CPU:      time.Duration(number(file("cpuacct", "cpuacct.usage"))),
		Memory:   number(file("memory", "memory.usage_in_bytes")),
		PIDs:     number(file("pids", "pids.current")),
		ReadByte: -1, WriteByte: -1, Throttled: -1,
	}
	if text := file("cpu", "cpu.stat"); text != "" {
		u.Throttled = time.Duration(counter(text, "throttled_time"))
	}
	if u.Memory >= 0 {
		u.Memory = max(0, u.Memory-counter(file("memory", "memory.stat"), "total_inactive_file"))
	}
	if text := file("blkio", "blkio.throttle.io_service_bytes_recursive"); text != "" {
		u.ReadByte, u.WriteByte = 0, 0
		for line := range strings.Lines(text) { // "8:0 Read 4096"
			switch f := strings.Fields(line); {
			case len(f) != 3:
			case f[1] == "Read":
				u.ReadByte += max(0, number(f[2]))
			case f[1] == "Write":
				u.WriteByte += max(0, number(f[2]))
			}
		}
	}
	return u
}

// usageV2 is like usageV1, but for v2 files. See Documentation/admin-guide/cgroup-v2.
func usageV2(file func(name string) string) driver.Usage {
	u := driver.Usage{
		CPU: -1, Memory: number(file("memory.current")), PIDs: number(file("pids.current")),
		ReadByte: -1, WriteByte: -1, Throttled: -1,
	}
	if text := file("cpu.stat"); text != "" {
		u.CPU = time.Duration(counter(text, "usage_usec")) * time.Microsecond
		if strings.Contains(text, "throttled_usec ") { // present only if the controller is enabled
			u.Throttled = time.Duration(counter(text, "throttled_usec")) * time.Microsecond
		}
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

// number parses the contents of a file that contains one number. It returns -1 if text is not a
// number.
func number(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return -1
	}
	return n
}
