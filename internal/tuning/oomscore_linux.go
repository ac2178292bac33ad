package tuning

import (
	"os"
	"strconv"
	"strings"
	"sync"
)

const path = "/proc/self/oom_score_adj"

// process contains this process's OOM score, which applies to all of its threads.
var process struct {
	mu        sync.Mutex // locked while writing to /proc, which does not block
	protected bool
	base, own string
	forks     int // number of forks in progress
}

// ProtectFromOOM sets this process's OOM score. Lowering the score requires CAP_SYS_RESOURCE;
// without this capability, ProtectFromOOM does nothing. Call it once, before any fork.
func ProtectFromOOM(score int) {
	process.mu.Lock()
	defer process.mu.Unlock()
	base, err := os.ReadFile(path)
	if err != nil {
		return
	}
	process.base, process.own = strings.TrimSpace(string(base)), strconv.Itoa(score)
	process.protected = set(process.own)
}

// ForkUnprotected calls fork, which must start a child and return once the child has executed its
// program. The child gets the score that this process had before [ProtectFromOOM]. Because a child
// inherits its parent's score, this process is unprotected during the fork, for about a
// millisecond.
func ForkUnprotected(fork func()) {
	enter(1)
	defer enter(-1)
	fork()
}

// enter adds n to the number of forks in progress. The first fork removes the protection,
// and the end of the last one restores it.
func enter(n int) {
	process.mu.Lock()
	defer process.mu.Unlock()
	if !process.protected {
		return
	}
	process.forks += n
	switch {
	case n > 0 && process.forks == 1:
		set(process.base)
	case process.forks == 0:
		set(process.own)
	}
}

func set(score string) bool { return os.WriteFile(path, []byte(score), 0) == nil }
