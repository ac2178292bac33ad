package tuning

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// A small heap may grow to five times the live heap. Above the floor, Go's default applies, so that a server with a
// live heap of 1 GiB uses 2 GiB instead of 5 GiB.
func TestPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 1 << 20: 400, 8 << 20: 400, 10 << 20: 300, 20 << 20: 100, 40 << 20: 100, 1 << 40: 100} {
		if got := percent(live); got != want {
			t.Errorf("live heap of %d MiB: %d, want %d", live>>20, got, want)
		}
	}
}

// The percentage changes when the heap grows and when it shrinks.
func TestCollectFollowsTheHeap(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	collect()
	until := func(want int) {
		t.Helper()
		for began := time.Now(); time.Since(began) < 20*time.Second; {
			runtime.GC()
			got := debug.SetGCPercent(want) // the current value can only be read by setting another one
			if got == want {
				return
			}
			debug.SetGCPercent(got)
		}
		t.Errorf("the percentage was never %d", want)
	}
	held := make([]byte, 64<<20)
	until(100)
	runtime.KeepAlive(held)
	until(400)
}

// The limit is based on the cgroup's limit. If there is none, it is a quarter of the host's
// memory.
func TestMemoryLimit(t *testing.T) {
	for _, tt := range []struct {
		host, group uint64
		want        int64
	}{
		{4 << 30, 0, 1 << 30},
		{4 << 30, 1000 << 20, 900 << 20},
		{4 << 30, 1 << 62, 1 << 30}, // the value that represents no limit in version 1
		{0, 1000 << 20, 900 << 20},
		{0, 0, 0},
	} {
		if got := memoryLimit(tt.host, tt.group); got != tt.want {
			t.Errorf("limit for a host with %d and a cgroup with %d: %d, want %d", tt.host, tt.group, got, tt.want)
		}
	}
}
