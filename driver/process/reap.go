package process

import (
	"errors"
	"sync"
	"syscall"
	"time"
)

// children routes the ends of processes to those who started them. No thread
// and no goroutine waits for a child: SIGCHLD wakes one reaper for all.
//
// Locks: forking is taken before mu, and never held together with another.
type children struct {
	// forking is held for reading from before a fork until its child is in
	// byPID. The reaper takes it for writing when it has reaped a pid that it
	// does not know: after that it either knows it, or it was an orphan.
	forking sync.RWMutex

	mu    sync.Mutex
	byPID map[int]func(ended)
}

// ended is how a process ended.
type ended struct {
	status syscall.WaitStatus
	at     time.Time
}

// start calls fork, which gives the child and what is to be called when it
// has ended: once, in the reaper's goroutine, so it must not block.
func (c *children) start(fork func() (pid int, onEnd func(ended), err error)) (int, error) {
	c.forking.RLock()
	defer c.forking.RUnlock()
	pid, onEnd, err := fork()
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byPID[pid] = onEnd
	return pid, nil
}

// reap collects every child that has ended. It is called at each SIGCHLD.
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
		// The rest of its process group goes at once. Its number cannot belong
		// to anybody else yet: numbers are given out in a circle.
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
	// Forks in progress have registered once this is had.
	c.forking.Lock()
	defer c.forking.Unlock()
	return c.remove(pid)
}

func (c *children) remove(pid int) func(ended) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.byPID[pid]
	delete(c.byPID, pid)
	return f
}

// owns reports whether pid is a child that somebody started.
func (c *children) owns(pid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.byPID[pid]
	return ok
}

// killGroup sends a signal to a process group; false when no one is in it.
func killGroup(pgid int, s syscall.Signal) bool {
	return pgid > 1 && syscall.Kill(-pgid, s) != syscall.ESRCH
}

// awaitGroup waits until no one is left in a group that was killed, at most
// grace: a process may hang in the kernel.
func awaitGroup(pgid int, grace time.Duration) {
	deadline := time.Now().Add(grace)
	// Almost always no one is left at once; the kernel tells no one about
	// others' children, so the rest is asked for.
	for pause := 100 * time.Microsecond; killGroup(pgid, 0) && time.Now().Before(deadline); pause = min(2*pause, 20*time.Millisecond) {
		time.Sleep(pause)
	}
}
