package tuning

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// A small heap grows to five times the live heap; from the floor on Go's default
// holds, so that a server of 1 GiB takes 2 GiB and not 5.
func TestPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 1 << 20: 400, 8 << 20: 400, 10 << 20: 300, 20 << 20: 100, 40 << 20: 100, 1 << 40: 100} {
		if got := percent(live); got != want {
			t.Errorf("with %d MiB living: %d, want %d", live>>20, got, want)
		}
	}
}

// The percentage follows the heap up and down again.
func TestCollectFollowsTheHeap(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	collect()
	until := func(want int) {
		t.Helper()
		for began := time.Now(); time.Since(began) < 20*time.Second; {
			runtime.GC()
			got := debug.SetGCPercent(want) // it can only be read by being set
			if got == want {
				return
			}
			debug.SetGCPercent(got)
		}
		t.Errorf("it is never %d", want)
	}
	held := make([]byte, 64<<20)
	until(100)
	runtime.KeepAlive(held)
	until(400)
}

// A cgroup's limit counts; without one a quarter of the host is the server's.
func TestMemoryLimit(t *testing.T) {
	for _, tt := range []struct {
		host, group uint64
		want        int64
	}{
		{4 << 30, 0, 1 << 30},
		{4 << 30, 1000 << 20, 900 << 20},
		{4 << 30, 1 << 62, 1 << 30}, // version 1's value for no limit
		{0, 1000 << 20, 900 << 20},
		{0, 0, 0},
	} {
		if got := memoryLimit(tt.host, tt.group); got != tt.want {
			t.Errorf("of a host with %d and a cgroup with %d: %d, want %d", tt.host, tt.group, got, tt.want)
		}
	}
}
