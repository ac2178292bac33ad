package tuning

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// RuntimeOfServer has this process collect its heap and limit its memory as a server
// does. $GOGC and $GOMEMLIMIT win.
func RuntimeOfServer() {
	if os.Getenv("GOGC") == "" {
		collect()
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		if limit := memoryLimit(hostMemory(), cgroupMemory("/proc/self/cgroup", "/sys/fs/cgroup")); limit > 0 {
			debug.SetMemoryLimit(limit)
		}
	}
}

const (
	// floor is the size below which a heap grows before it is collected: that of a
	// small server is a few MiB, and collecting it more often costs latency and
	// saves nothing.
	floor = 40 << 20
	// most limits that growth, in percent of the live heap.
	most = 400
	// least is Go's own default, which holds above the floor.
	least = 100
)

// percent returns how far a heap of which live bytes live may grow before it is
// collected.
func percent(live uint64) int {
	if live == 0 {
		return most
	}
	return int(min(max(100*floor/live, least+100)-100, most))
}

// collect sets the percentage now, and again after each collection of the heap.
func collect() {
	now := most
	debug.SetGCPercent(now)
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	var again func(*marker)
	again = func(*marker) { // one goroutine runs all finalizers
		metrics.Read(sample)
		// Setting it stops the world for a moment.
		if next := percent(sample[0].Value.Uint64()); 10*abs(next-now) > now {
			now = next
			debug.SetGCPercent(now)
		}
		runtime.SetFinalizer(new(marker), again)
	}
	again(nil)
}

// marker is garbage from its beginning: that it is collected means that the heap
// was. It is too large to share its memory with other small objects.
type marker [32]byte

func abs(n int) int { return max(n, -n) }

// memoryLimit returns the process's soft limit of memory: nine tenths of what its
// cgroup may have, else a quarter of the host's, since machines need
// the rest. 0 means none is known.
func memoryLimit(host, group uint64) int64 {
	switch {
	case group > 0 && (host == 0 || group < host):
		return int64(min(group/10*9, math.MaxInt64))
	default:
		return int64(min(host/4, math.MaxInt64))
	}
}
