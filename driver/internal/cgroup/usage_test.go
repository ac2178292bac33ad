package cgroup

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse/driver"
)

var none = driver.Usage{CPU: -1, Memory: -1, PIDs: -1, ReadByte: -1, WriteByte: -1, Throttled: -1}

func TestUsage(t *testing.T) {
	v1 := map[string]string{
		"cpuacct/cpuacct.usage":                           "1500000000\n",
		"cpu/cpu.stat":                                    "nr_periods 9\nnr_throttled 2\nthrottled_time 70000000\n",
		"memory/memory.usage_in_bytes":                    "8192\n",
		"memory/memory.stat":                              "inactive_file 1\ntotal_inactive_file 4096\n",
		"pids/pids.current":                               "3\n",
		"blkio/blkio.throttle.io_service_bytes_recursive": "8:0 Read 100\n8:0 Write 7\n9:0 Read 11\n8:0 Sync 5\nTotal 118\n",
	}
	want := driver.Usage{CPU: 1500 * time.Millisecond, Memory: 4096, PIDs: 3, ReadByte: 111, WriteByte: 7, Throttled: 70 * time.Millisecond}
	if diff := cmp.Diff(want, usageV1(func(c, n string) string { return v1[c+"/"+n] })); diff != "" {
		t.Errorf("v1 (-want +got):\n%s", diff)
	}
	v2 := map[string]string{
		"cpu.stat":       "usage_usec 1500000\nuser_usec 1\nthrottled_usec 70000\n",
		"memory.current": "8192\n",
		"memory.stat":    "anon 1\ninactive_file 4096\n",
		"pids.current":   "3\n",
		"io.stat":        "8:0 rbytes=100 wbytes=7 rios=1\n9:0 rbytes=11 wbytes=0\n",
	}
	if diff := cmp.Diff(want, usageV2(func(n string) string { return v2[n] })); diff != "" {
		t.Errorf("v2 (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(none, usageV1(func(string, string) string { return "" })); diff != "" {
		t.Errorf("v1 without files (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(none, usageV2(func(string) string { return "" })); diff != "" {
		t.Errorf("v2 without files (-want +got):\n%s", diff)
	}
}

func TestCPU(t *testing.T) {
	for name, c := range map[string]struct {
		limits         driver.Limits
		want           CPU
		shares, weight int64
	}{
		"one":       {driver.Limits{CPUQuota: 1000, CPUWeight: 1000}, CPU{Period: 100_000, Quota: 100_000}, 1024, 100},
		"a quarter": {driver.Limits{CPUQuota: 250, CPUWeight: 250}, CPU{Period: 100_000, Quota: 25_000}, 256, 25},
		"least":     {driver.Limits{CPUQuota: 1, CPUWeight: 1}, CPU{Period: 100_000, Quota: 1000}, 2, 1},
		"most":      {driver.Limits{CPUQuota: 4_096_000, CPUWeight: 4_096_000}, CPU{Period: 100_000, Quota: 409_600_000}, 262_144, 10_000},
		"5 ms of 80": {
			driver.Limits{CPUQuota: 125, CPUPeriod: 80 * time.Millisecond, CPUBurst: 5 * time.Millisecond, CPUWeight: 2000},
			CPU{Period: 80_000, Quota: 10_000, Burst: 5000},
			2048, 200,
		},
		"a burst beyond the quota": {driver.Limits{CPUQuota: 100, CPUBurst: time.Hour}, CPU{Period: 100_000, Quota: 10_000, Burst: 10_000}, 2, 1},
		"a long period":            {driver.Limits{CPUQuota: 100, CPUPeriod: time.Hour}, CPU{Period: 1_000_000, Quota: 100_000}, 2, 1},
		"a short period":           {driver.Limits{CPUQuota: 100, CPUPeriod: 1}, CPU{Period: 1000, Quota: 1000}, 2, 1},
	} {
		if got := CPUOf(c.limits); got != c.want || shares(c.limits) != c.shares || weight(c.limits) != c.weight {
			t.Errorf("%s: got %+v, shares %d, weight %d, want %+v, %d, %d", name, got, shares(c.limits), weight(c.limits), c.want, c.shares, c.weight)
		}
	}
}

func FuzzUsage(f *testing.F) {
	f.Add("8:0 rbytes=100 wbytes=7\n")
	f.Add("8:0 Read 100\n8:0 Write -7\n")
	f.Add("total_inactive_file 99999999999999999999\nusage_usec x")
	f.Fuzz(func(t *testing.T, text string) {
		for _, u := range []driver.Usage{usageV1(func(string, string) string { return text }), usageV2(func(string) string { return text })} {
			if u.Memory < -1 && number(text) >= -1 {
				t.Errorf("%q gave %+v", text, u)
			}
		}
	})
}
