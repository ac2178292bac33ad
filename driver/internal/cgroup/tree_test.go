package cgroup

import (
	"testing"
)

const (
	hybridMounts = `30 25 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
32 25 0:28 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
33 25 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`
	unifiedMounts = "30 25 0:26 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"
)

func TestTreeFindsMounts(t *testing.T) {
	for text, want := range map[string]struct{ mode, memory, cpuacct, v2 string }{
		hybridMounts:      {"hybrid", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu,cpuacct", ""},
		unifiedMounts:     {"v2", "", "", "/sys/fs/cgroup"},
		hybridMounts[:75]: {"v1", "/sys/fs/cgroup/memory", "", ""},
		"":                {"none", "", "", ""},
	} {
		var g Tree
		g.parse(text)
		if g.mount.Mode != want.mode || g.mount.V1["memory"] != want.memory || g.mount.V1["cpuacct"] != want.cpuacct || g.mount.V2 != want.v2 {
			t.Errorf("%q was parsed as %+v, want %+v", text, g.mount, want)
		}
	}
}

func FuzzTree(f *testing.F) {
	f.Add(hybridMounts)
	f.Add(unifiedMounts)
	f.Add("1 2 3 / / - cgroup")
	f.Fuzz(func(_ *testing.T, text string) {
		var g Tree
		g.parse(text)
	})
}
