package tuning

import (
	"os"
	"strconv"
	"strings"
	"sync"
)

const path = "/proc/self/oom_score_adj"

// process is this process's score; the kernel has one for all its threads.
var process struct {
	mu        sync.Mutex // held over a write to /proc, which does not wait
	protected bool
	base, own string
	forks     int // in progress
}

// ProtectFromOOM sets this process's score, if it may lower its own, which takes
// CAP_SYS_RESOURCE. It is called once, before anything is forked.
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

// ForkUnprotected calls fork, which forks and executes and returns when the child
// has executed: the child has the score that this process had before Protect.
// A score is inherited at the fork and can be changed only for a whole process,
// so this one is without protection in the meantime, for a millisecond.
func ForkUnprotected(fork func()) {
	enter(1)
	defer enter(-1)
	fork()
}

// enter notes that a fork begins or has ended. The first takes the protection
// away and the last brings it back.
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
