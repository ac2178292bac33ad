package cgroup

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	mountsV1 = `25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
33 32 0:29 / /sys/fs/cgroup/systemd rw,nosuid shared:9 - cgroup cgroup rw,xattr,name=systemd
36 32 0:32 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:15 - cgroup cgroup rw,cpu,cpuacct
37 32 0:33 / /sys/fs/cgroup/memory rw,nosuid shared:16 - cgroup cgroup rw,memory
38 32 0:34 / /sys/fs/cgroup/pids rw,nosuid shared:17 - cgroup cgroup rw,pids
`
	mountV2     = "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	mountHybrid = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
	mountSpace  = "36 32 0:32 / /odd\\040place/cpu rw - cgroup none rw,cpu\n"
)

func TestChoose(t *testing.T) {
	v1 := map[string]string{"cpu": "/sys/fs/cgroup/cpu,cpuacct", "cpuacct": "/sys/fs/cgroup/cpu,cpuacct", "memory": "/sys/fs/cgroup/memory", "pids": "/sys/fs/cgroup/pids"}
	for name, c := range map[string]struct {
		mountinfo string
		want      Choice
	}{
		"none":          {"25 1 8:1 / / rw - ext4 /dev/sda1 rw\n", Choice{Mode: "none", V1: map[string]string{}}},
		"v1":            {mountsV1, Choice{Mode: "v1", V1: v1}},
		"v2":            {mountV2, Choice{Mode: "v2", V1: map[string]string{}, V2: "/sys/fs/cgroup"}},
		"hybrid":        {mountsV1 + mountHybrid, Choice{Mode: "hybrid", V1: v1, V2: "/sys/fs/cgroup/unified"}},
		"the first":     {mountsV1 + mountSpace, Choice{Mode: "v1", V1: v1}},
		"escaped":       {mountSpace, Choice{Mode: "v1", V1: map[string]string{"cpu": "/odd place/cpu"}}},
		"only systemd":  {"33 32 0:29 / /s rw - cgroup cgroup rw,name=systemd\n", Choice{Mode: "v1", V1: map[string]string{}}},
		"broken lines":  {"\n - \n1 2 - cgroup\n - cgroup2 x y\n", Choice{Mode: "none", V1: map[string]string{}}},
		"not even text": {"\x00\xff", Choice{Mode: "none", V1: map[string]string{}}},
	} {
		got := Choose(ParseMountinfo(c.mountinfo))
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestParseSelf(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want map[string]string
	}{
		"v1":     {"4:memory:/user/1\n1:cpu,cpuacct:/\n9:name=systemd:/x\n", map[string]string{"memory": "/user/1", "cpu": "/", "cpuacct": "/", "name=systemd": "/x"}},
		"v2":     {"0::/system.slice/bourse.service\n", map[string]string{"": "/system.slice/bourse.service"}},
		"hybrid": {"2:pids:/p\n0::/\n", map[string]string{"pids": "/p", "": "/"}},
		"broken": {"4:memory\nx\n\n1:cpu:relative\n", map[string]string{}},
	} {
		if diff := cmp.Diff(c.want, parseSelf(c.text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestCounter(t *testing.T) {
	const text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"
	if got := counter(text, "oom_kill"); got != 3 {
		t.Errorf("got %d, want 3", got)
	}
	if got := counter(text, "oom"); got != 0 {
		t.Errorf("got %d for a missing name, want 0", got)
	}
}

func FuzzCgroupFiles(f *testing.F) {
	f.Add(mountsV1 + mountHybrid)
	f.Add("0::/x\n4:memory:/user/1\n")
	f.Add("oom_kill 3\n\\04")
	f.Fuzz(func(t *testing.T, text string) {
		c := Choose(ParseMountinfo(text))
		if c.Mode == "none" && (len(c.V1) > 0 || c.V2 != "") {
			t.Errorf("%+v contains mounts, but its mode is none", c)
		}
		parseSelf(text)
		counter(text, "oom_kill")
	})
}
