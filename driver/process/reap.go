package process

import (
	"errors"
	"sync"
	"syscall"
	"time"
)

// children tracks the processes that this process has started, and calls a function when one of
// them ends. No thread or goroutine waits for a single child: at each SIGCHLD, one goroutine reaps
// all children that have ended.
//
// Lock order: taskEnv.freezing, then forkLock, then mu.
type children struct {
	// forkLock is held for reading from just before a fork until the child has been added to byPID.
	// If the reaper reaps a pid that is not in byPID, it locks forkLock for writing, which waits
	// for forks in progress, and looks again. If the pid is still not in byPID, it belongs to an
	// orphan that this process has adopted.
	forkLock sync.RWMutex

	mu    sync.Mutex
	byPID map[int]func(ended)
}

// ended describes how a process ended.
type ended struct {
	status syscall.WaitStatus
	at     time.Time
}

// start starts a child by calling fork, which returns the child's pid and the function onEnd. onEnd
// is called once, when the child has ended. It runs in the reaper's goroutine and must not block.
func (c *children) start(fork func() (pid int, onEnd func(ended), err error)) (int, error) {
	c.forkLock.RLock()
	defer c.forkLock.RUnlock()
	pid, onEnd, err := fork()
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byPID[pid] = onEnd
	return pid, nil
}

// reap reaps all children that have ended. It is called at each SIGCHLD.
func (c *children) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		// Kill the rest of the process group immediately. The group's id cannot have been reused
		// yet, because the kernel assigns ids cyclically.
		onEnd := c.take(pid)
		if onEnd != nil {
			killGroup(pid, syscall.SIGKILL)
			onEnd(ended{status: status, at: time.Now().UTC()})
		}
	}
}

func (c *children) take(pid int) func(ended) {
	if f := c.remove(pid); f != nil {
		return f
	}
	// Once forkLock has been acquired, the children of all earlier forks have been registered.
	c.forkLock.Lock()
	defer c.forkLock.Unlock()
	return c.remove(pid)
}

func (c *children) remove(pid int) func(ended) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.byPID[pid]
	delete(c.byPID, pid)
	return f
}

// owns reports whether pid is a registered child.
func (c *children) owns(pid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.byPID[pid]
	return ok
}

// killGroup sends a signal to a process group. It returns false if the group does not exist.
func killGroup(pgid int, s syscall.Signal) bool {
	return pgid > 1 && syscall.Kill(-pgid, s) != syscall.ESRCH
}

// awaitGroup waits until a killed process group is empty, but no longer than grace, because a
// process may hang in the kernel.
func awaitGroup(pgid int, grace time.Duration) {
	deadline := time.Now().Add(grace)
	// The group is almost always empty immediately. Otherwise, poll, because the kernel does not
	// report when children of other processes exit.
	for pause := 100 * time.Microsecond; killGroup(pgid, 0) && time.Now().Before(deadline); pause = min(2*pause, 20*time.Millisecond) {
		time.Sleep(pause)
	}
}
