package container

import (
	"testing"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

const (
	hybridMounts = `30 25 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
32 25 0:28 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
33 25 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`
	unifiedMounts = "30 25 0:26 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"
)

func TestFindCgroups(t *testing.T) {
	for text, want := range map[string]struct{ mode, memory, cpuacct, v2 string }{
		hybridMounts:      {"hybrid", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu,cpuacct", ""},
		unifiedMounts:     {"v2", "", "", "/sys/fs/cgroup"},
		hybridMounts[:75]: {"v1", "/sys/fs/cgroup/memory", "", ""},
		"":                {"none", "", "", ""},
	} {
		var g cgroups
		g.parse(text)
		if g.mode != want.mode || g.v1["memory"] != want.memory || g.v1["cpuacct"] != want.cpuacct || g.v2 != want.v2 {
			t.Errorf("%q was read as %+v, want %+v", text, &g, want)
		}
	}
}

func FuzzCgroups(f *testing.F) {
	f.Add(hybridMounts)
	f.Add(unifiedMounts)
	f.Add("1 2 3 / / - cgroup")
	f.Fuzz(func(_ *testing.T, text string) {
		var g cgroups
		g.parse(text)
		counter(text, "oom_kill")
		usageV1(func(string, string) string { return text })
		usageV2(func(string) string { return text })
	})
}

func TestUsageFiles(t *testing.T) {
	v1 := map[string]string{
		"cpuacct.usage": "1500000000\n", "memory.usage_in_bytes": "5000\n", "memory.stat": "cache 1\ntotal_inactive_file 2000\n",
		"pids.current": "3\n", "cpu.stat": "nr_periods 1\nthrottled_time 7000000\n",
		"blkio.throttle.io_service_bytes_recursive": "8:0 Read 10\n8:0 Write 20\n8:16 Read 1\nTotal 31\n",
	}
	want := driver.Usage{CPU: 1500 * time.Millisecond, Memory: 3000, PIDs: 3, ReadByte: 11, WriteByte: 20, Throttled: 7 * time.Millisecond}
	if got := usageV1(func(_, name string) string { return v1[name] }); got != want {
		t.Errorf("v1: %+v, want %+v", got, want)
	}
	v2 := map[string]string{
		"cpu.stat": "usage_usec 1500000\nthrottled_usec 7000\n", "memory.current": "5000\n", "memory.stat": "inactive_file 2000\n",
		"pids.current": "3\n", "io.stat": "8:0 rbytes=10 wbytes=20 rios=1\n8:16 rbytes=1 wbytes=0\n",
	}
	if got := usageV2(func(name string) string { return v2[name] }); got != want {
		t.Errorf("v2: %+v, want %+v", got, want)
	}
	none := driver.Usage{CPU: -1, Memory: -1, PIDs: -1, ReadByte: -1, WriteByte: -1}
	if got := usageV2(func(string) string { return "" }); got != none {
		t.Errorf("nothing accounted: %+v, want %+v", got, none)
	}
}
