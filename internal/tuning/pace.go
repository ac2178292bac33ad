package tuning

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// RuntimeOfServer configures the garbage collector and the memory limit of this process for
// a server. $GOGC and $GOMEMLIMIT take precedence.
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
	// floor is the minimum heap size, in bytes, for a garbage collection. A small server's heap takes a few MiB, and
	// collecting it more often would add latency and save little.
	floor = 40 << 20
	// maxPercent is the maximum growth of the heap, as a percentage of the live heap.
	maxPercent = 400
	// minPercent is the minimum growth of the heap, as a percentage of the live heap. It is Go's default.
	minPercent = 100
)

// percent returns by what percentage a heap with the given number of live bytes may grow before it is collected.
func percent(live uint64) int {
	if live == 0 {
		return maxPercent
	}
	return int(min(max(100*floor/live, minPercent+100)-100, maxPercent))
}

// collect sets the GC percentage now and after each garbage collection.
func collect() {
	now := maxPercent
	debug.SetGCPercent(now)
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	var again func(*marker)
	again = func(*marker) { // all finalizers run in one goroutine
		metrics.Read(sample)
		// Setting the percentage briefly stops all goroutines, so ignore small changes.
		if next := percent(sample[0].Value.Uint64()); 10*abs(next-now) > now {
			now = next
			debug.SetGCPercent(now)
		}
		runtime.SetFinalizer(new(marker), again)
	}
	again(nil)
}

// marker is the type of a value that nothing refers to, so that its finalizer runs after each
// garbage collection. It is too large for the allocator of tiny objects.
type marker [32]byte

func abs(n int) int { return max(n, -n) }

// memoryLimit returns the process's soft memory limit in bytes. group is the limit of the process's cgroup, and host is
// the host's memory; 0 means unknown. If group is known and less than host, the result is nine tenths of group.
// Otherwise it is a quarter of host, because machines need the rest. It is 0 if both are unknown.
func memoryLimit(host, group uint64) int64 {
	switch {
	case group > 0 && (host == 0 || group < host):
		return int64(min(group/10*9, math.MaxInt64))
	default:
		return int64(min(host/4, math.MaxInt64))
	}
}
